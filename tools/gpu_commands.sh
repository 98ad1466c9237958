# shellcheck shell=bash
# The commands that need a GPU, those that measure aside. Part of ./dev, whose functions and constants they use.

# Bad accesses, races in shared memory, and barriers that threads miss.
command_gpu_sanitize() {
  require_no_words gpu-sanitize "$@"
  local tool options gpus log=build/cuda/sanitize.log large cases="*large_nvfp4:*large_few_senders:*large_many_choices:*large_many_entries"
  # Ranks that share a GPU are processes: calls of one process wait for each other under the tool.
  local small=shapes/smallest,shapes/uneven_experts,shapes/top_22,routings/ragged,routings/none,calls/forms
  small+=,options/weights,options/unreduced,counts/by_counts,calls/abandoned,refusals/dispatch_output,handles/refused
  small+=,weights/late_with_handle,weights/returned_in_place,bytes/few
  local refused=refusals/dispatch_input,refusals/combine_by_rank,refusals/weights,refusals/waits,orders/refused
  refused+=,weights/late_refused,weights/returned_refused,sizes/too_small,outputs/refused_arrays,counts/refused,formats/refused
  refused+=,handles/short_refused,overflow/refused,reductions/refused,bytes/refused,outputs/refused_scales
  refused+=,options/dynamic_scales_refused,refusals/combine_exact,refusals/int64_ids
  # What only a kernel finds: bad ids and scales, foreign and spoiled handles. Ranks of one process take a GPU each, and
  # do with two. Left out: GpuRefusals and GpuMaskedHandles have four, GpuOtherHandles.AreNotTaken* refuses nothing.
  local of_one_rank="GpuBadInput.*:*GpuBadId*:GpuInputScale.*:GpuFormats.LargerThanABlock*"
  local of_two_ranks="GpuHandles.*End*:GpuHandles.RefuseWeights*:GpuHandles.OfRowsThatAreSums*:GpuHandles.ThatLackRows*"
  of_two_ranks+=":GpuAnyHandles.*:GpuShortHandles.*End*:GpuShortHandles.WithTooFewBytes*:GpuOtherHandles.*AreNoticed*"
  of_two_ranks+=":GpuFormats.HandlesWhoseRowsHaveNoRoom*:GpuCounts.ThatAreOutOfRange*"
  local -x FERRY_TEST_CASES
  need build
  PATH=$PATH:/usr/local/cuda/bin
  command -v compute-sanitizer >/dev/null || {
    say "compute-sanitizer was not found: it comes with the CUDA toolkit"
    return 1
  }
  build_preset cuda gpu_tests gpu_process_tests
  gpus=$(nvidia-smi --list-gpus | wc -l)
  for tool in memcheck racecheck synccheck; do
    say "compute-sanitizer: $tool"
    options=(--tool "$tool" --error-exitcode 1)
    FERRY_TEST_CASES=$small
    large=$cases
    if [[ $tool == memcheck ]]; then
      options+=(--report-api-errors no) # a pair of GPUs may be joined already
      FERRY_TEST_CASES+=,$refused       # calls that are refused touch nothing
      large+=:$of_one_rank
      ((gpus < 2)) || large+=:$of_two_ranks
    fi
    FERRY_TEST_RANKS=$gpus compute-sanitizer "${options[@]}" build/cuda/tests/gpu_tests --gtest_filter="$large" |
      tee "$log"
    grep -q '^\[       OK \]' "$log" || fail "no large case ran under $tool: it takes a GPU"
    compute-sanitizer "${options[@]}" --target-processes all build/cuda/tests/gpu/processes/gpu_process_tests \
      --gtest_filter=GpuProcesses.ConformInCases | tee "$log"
    grep -q '^\[       OK \]' "$log" || fail "a small case failed under $tool, or none ran"
  done
}

# What configures the Python package for tests on GPUs: they need torch. Without it they are left out.
gpu_python_options() {
  local python
  for python in "$venv/bin/python" python3; do
    "$python" -c 'import nanobind, numpy, pytest, torch' >/dev/null 2>&1 || continue
    configure_options=(-DFERRY_PYTHON=ON -DPython_EXECUTABLE="$(realpath -s "$(command -v "$python")")")
    return 0
  done
  say "no Python was found that has torch, numpy, nanobind and pytest: the Python package is not tested on GPUs"
  configure_options=(-DFERRY_PYTHON=OFF)
}

# The tests whose names begin with gpu/ or cli/test_gpu, of the preset cuda. Nothing else is built.
command_gpu_test() {
  require_no_words gpu-test "$@"
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || say "no GPU was found in /dev: tests that need one will be skipped"
  local result=$results/gpu.xml log=build/cuda/ctest.log failed=0 configure_options=()
  need build
  gpu_python_options
  mkdir -p "$results"
  rm -f "$result"
  build_preset cuda ferry_gpu_tests
  say "testing on GPUs; the log is $log"
  ctest --preset cuda -R '^(gpu/|cli/test_gpu)' --output-junit "$PWD/$result" 2>&1 | tee "$log" | tests_progress 20 || {
    grep -vE '^ +Start +[0-9]+: | +Passed +[0-9.]+ sec$' "$log"
    failed=1
  }
  python3 tools/sum_tests.py --may-skip-all "$result" || failed=1
  return "$failed"
}
