#pragma once
#include "cuda/ptx.cuh"
// [kind][block<512][team<4][mark<8]
#define FERRY_MARK(links, kind, team, mark, cond) do { if ((links).trace && (cond)) (links).trace[(((kind)*512 + blockIdx.x)*4 + (team))*8 + (mark)] = ::ferry::ptx::global_nanoseconds(); } while (0)
