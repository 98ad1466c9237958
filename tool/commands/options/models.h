// Named models: the shapes of Mixture-of-Experts layers that `--model` understands.
#pragma once

#include <array>
#include <string_view>

namespace ferry::app {

struct Model {
  std::string_view name;
  int hidden;   // columns that dispatch carries (the latent size where the model has one)
  int inter;    // columns of an expert's intermediate; 0 where the model's authors do not say
  int experts;  // routed experts of a layer
  int top_k;    // experts that a token is sent to
};

inline constexpr std::array kModels = {
    Model{"deepseek-v3", 7168, 2048, 256, 8},
    Model{"deepseek-v4-flash", 4096, 2048, 256, 6},
    Model{"deepseek-v4-pro", 7168, 3072, 384, 6},
    Model{"deepseek-v2-lite", 2048, 1408, 64, 6},
    Model{"kimi-k2", 7168, 2048, 384, 8},
    Model{"kimi-k3", 3584, 0, 896, 16},
    Model{"qwen3-235b", 4096, 1536, 128, 8},
    Model{"qwen3-30b", 2048, 768, 128, 8},
    Model{"qwen3-coder-480b", 6144, 2560, 160, 8},
    Model{"qwen3.5-397b", 4096, 1024, 512, 10},
    Model{"gpt-oss-120b", 2880, 2880, 128, 4},
    Model{"gpt-oss-20b", 2880, 2880, 32, 4},
    Model{"llama-4-maverick", 5120, 8192, 128, 1},
    Model{"llama-4-scout", 5120, 8192, 16, 1},
    Model{"glm-4.5", 5120, 1536, 160, 8},
    Model{"glm-4.5-air", 4096, 1408, 128, 8},
    Model{"glm-5", 6144, 2048, 256, 8},
    Model{"minimax-m2", 3072, 1536, 256, 8},
    Model{"nemotron-3-super", 1024, 0, 512, 22},
    Model{"mixtral-8x7b", 4096, 14336, 8, 2},
};

// Null where there is no such model.
constexpr const Model* find_model(std::string_view name) {
  for (const Model& model : kModels)
    if (model.name == name) return &model;
  return nullptr;
}

}  // namespace ferry::app
