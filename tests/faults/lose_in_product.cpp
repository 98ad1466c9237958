// Loaded before `ferry`: the process of rank FERRY_LOSE_RANK is killed by its matrix product number FERRY_LOSE_PRODUCT,
// in the middle of the layer's rounds.
#include <cblas.h>
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}

int products = 0;

}  // namespace

extern "C" void cblas_sgemm(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE turn_a, CBLAS_TRANSPOSE turn_b, blasint m, blasint n,
                            blasint k, float alpha, const float* a, blasint lda, const float* b, blasint ldb,
                            float beta, float* c, blasint ldc) {
  static const auto product = reinterpret_cast<decltype(&cblas_sgemm)>(dlsym(RTLD_NEXT, "cblas_sgemm"));
  if (++products == number_of("FERRY_LOSE_PRODUCT") &&
      number_of("OMPI_COMM_WORLD_RANK") == number_of("FERRY_LOSE_RANK"))
    kill(getpid(), SIGKILL);
  product(layout, turn_a, turn_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
