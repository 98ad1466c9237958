# shellcheck shell=bash
# The steps of `./dev check`: a function check_<step> for each, which returns 77 where the machine lacks what it needs.
# Part of ./dev, whose functions and constants they use.

check_format() {
  local files
  mapfile -d '' files < <(sources)
  [[ ${#files[@]} -gt 0 ]] || { say "format: found nothing to check" && return 1; }
  printf '%s\0' "${files[@]}" | xargs -0 clang-format --dry-run -Werror
}
check_tidy() {
  need_clang_tidy || return 1
  local folder=build/tidy log=build/tidy.log tools=build/tools/$clang_tidy/bin preset=release home=
  # The build with GPUs has every file: those for NVSHMEM, too, where it was found. It gives each a command of its own.
  has_nvcc && preset=cuda
  [[ ! -f build/cuda/CMakeCache.txt ]] || home=$(sed -n 's/^NVSHMEM_HOME:.*=//p' build/cuda/CMakeCache.txt)
  cmake --preset "$preset" -B "$folder" -DFERRY_UNITY=OFF ${home:+-DNVSHMEM_HOME="$home"} >"$log" 2>&1 ||
    { cat "$log" >&2; return 1; }
  local here  # as a regular expression
  here=$(sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$PWD")
  local places=("$folder" "^$here/((src|tool|tests|benchmarks|examples)/.*|python/src/cuda/cuda_.*)\.cpp$")
  folder=build/cp-check  # the rest of the Python module, where the step python has built it
  [[ ! -f $folder/compile_commands.json ]] || places+=("$folder" "^$here/python/(src|transports)/.*\.cpp$")
  # Several files are one text, most of whose headers are read once. A source that lacks an include of its own is found
  # by ./dev check --all, where those of src and tool are looked at alone, and by whoever builds with FERRY_UNITY=OFF.
  local together='tests|benchmarks|examples'
  [[ -n $looks_alone ]] || together+='|src|tool'
  python3 tools/run_tidy.py --together "^$here/($together)/" "$PWD/$tools/clang-tidy" "$(nproc)" "${places[@]}" | tee "$log"
}
check_headers() { build_preset release ferry_header_check; }
check_dependencies() { python3 tools/check_dependencies.py .; }
check_words() { python3 tools/check_words.py .; }
check_sizes() { python3 tools/check_sizes.py .; }
check_invariants() { python3 tools/check_invariants.py .; }
check_docs() {
  build_preset release ferry_cli || return 1
  python3 tools/check_docs.py . --ferry build/release/ferry
}
has_nvcc() { [[ -n "$(command -v "${CUDACXX:-nvcc}" || compgen -G /usr/local/cuda/bin/nvcc)" ]]; }
require_nvcc() { has_nvcc || { say "skipped: nvcc was found neither on the PATH nor in /usr/local/cuda/bin" && return 1; }; }
# What a user builds who wants no tests: the suite of `ferry verify` is in it.
check_product() {
  local folder=build/product
  mkdir -p "$folder"
  cmake --preset release -B "$folder" -DFERRY_TESTS=OFF -DFERRY_BENCHMARKS=OFF -DFERRY_EXAMPLES=OFF >"$folder/configure.log" 2>&1 &&
    cmake --build "$folder" --parallel "$(nproc)" --target ferry_cli -- --quiet || return 1
  "$folder/ferry" verify --backend cpu --quick >"$folder/verify.log" || { tail -5 "$folder/verify.log" >&2; return 1; }
}
# Installs the Python package as a user does, but with the tools and the objects that are there already (ccache wants
# the same compiler by the same name), and with the GPU code of the step cuda, in a folder of its own: users optimise it.
# Then types, and the tests: those of the package that stands in for DeepEP's beside the others, as both mostly wait.
check_python() {
  need_python_tools || return 1
  local pip=("$venv/bin/pip" -q --disable-pip-version-check install --no-build-isolation --no-deps --force-reinstall)
  CXX=c++ "${pip[@]}" -Cbuild-dir=build/cp-check -Ccmake.define.FERRY_WERROR=ON -Ccmake.define.FERRY_CUDA=AUTO "-Ccmake.define.${not_run#-D}" . &&
    "$venv/bin/mypy" && "${pip[@]}" ./python-deepep || return 1
  local status=0 log=build/deep_ep.log
  (cd python-deepep && "../$venv/bin/mypy" && "../$venv/bin/pytest") >"$log" 2>&1 &
  "$venv/bin/pytest" || status=1
  wait "$!" || status=1
  cat "$log"
  return "$status"
}
check_cuda() {
  require_nvcc || return 77
  need_python_tools || return 1
  # The tool links all that is installed. Benchmarks and examples for GPUs are not run.
  local configure_options=("$not_run" -DFERRY_PYTHON=ON -DPython_EXECUTABLE="$PWD/$venv/bin/python")
  build_preset cuda ferry_cli ferry_cuda_compile ferry_gpu_tests ferry_gpu_benchmarks ferry_python || return 1
  # Tests for GPUs, as far as they go without a GPU; the Python module too.
  local program log=build/cuda/without_gpu.log
  for program in activation/gpu_activation_tests hooks/gpu_hook_tests processes/gpu_process_tests; do
    CUDA_VISIBLE_DEVICES='' "build/cuda/tests/gpu/$program" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
  done
  PYTHONPATH=build/cuda/python "$venv/bin/pytest" python/tests/test_build.py || return 1
  # Kernels with a user's hooks, from an installed library, those of version 0.1 too; what is built is not run.
  package_project cuda && package_project v0_1/cuda
}
package_project() {
  cmake -D build="$PWD/build/cuda" -D source="$PWD/tests/package/$1" -D work="$PWD/build/cuda/package_$1" \
    -D generator=Ninja -D compiler=c++ \
    -D settings="-DCMAKE_CUDA_COMPILER=$(sed -n 's/^FERRY_NVCC:.*=//p' build/cuda/CMakeCache.txt);-DCMAKE_CUDA_ARCHITECTURES=90a-real;-DCMAKE_CUDA_FLAGS=--Ofast-compile=max" \
    -P tests/package/run.cmake
}

# Builds what needs NVSHMEM, tests, examples and the tool too, with that of the machine or of PyPI; nothing is run.
# They lie in the folder of `check cuda`, whose objects they need.
check_nvshmem() {
  require_nvcc || return 77
  local home=${NVSHMEM_HOME:-} folder=$PWD/build/cuda
  mkdir -p "$folder"
  if [[ -z "$home" ]] && ! python_has_nvshmem; then
    home=$folder/package/nvidia/nvshmem
    [[ -d "$home" ]] || python3 -m pip install -q --no-deps --target "$folder/package" nvidia-nvshmem-cu13 >"$folder/pip.log" 2>&1 ||
      { say "no NVSHMEM was found, and none could be fetched: see build/cuda/pip.log"; return 77; }
  fi
  cmake --preset cuda "$not_run" ${home:+-DNVSHMEM_HOME="$home"} >"$folder/configure.log" 2>&1 &&
    cmake --build "$folder" --parallel "$(nproc)" --target ferry_cli ferry_nvshmem_compile nvshmem_tests \
      nvshmem_hook_tests -- --quiet || {
    tail -20 "$folder/configure.log" >&2
    return 1
  }
  package_project nvshmem && package_project v0_1/nvshmem
}
