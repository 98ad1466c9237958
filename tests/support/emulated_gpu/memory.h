// What other parts of the emulated runtime say of memory, and what tests ask.
#pragma once

#include <cstddef>

namespace ferry::emulated {

// From now on it counts as memory of the device, or no longer.
void note_memory(const void* memory, std::size_t bytes, int device);
void forget_memory(const void* memory);

// Of memory that was made by cuMemCreate and that somebody still holds.
std::size_t created_bytes();
// How often memory was unmapped while kernels of the current device ran.
int unmaps_before_kernels_ended();

}  // namespace ferry::emulated
