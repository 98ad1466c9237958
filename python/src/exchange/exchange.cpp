#include "python/src/exchange/exchange.h"

#include <ferry/rows/host_rows.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>

#include "python/src/base/parts.h"
#include "python/src/base/values.h"
#include "python/src/cuda/cuda_parts.h"
#include "python/src/exchange/calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {

PyExchange::PyExchange(PyWorld& world, const Shape& shape, const PyOptions& options, const PyExchange* memory_of)
    : device_(world.device()),
      guard_(memory_of == nullptr ? std::make_shared<Guard>("this Exchange") : memory_of->guard_) {
  const auto lock = world.guard().enter();
  const auto lock_of_memory = guard_->enter();
  const std::shared_ptr<World> kept = world_ = world.world();
  Exchange* const lender = memory_of == nullptr ? nullptr : &memory_of->exchange();
  // The world lives as long as its exchange.
  const auto make = [&] {
    auto* const made =
        lender == nullptr ? new Exchange(*kept, shape, options.options) : new Exchange(*lender, shape, options.options);
    exchange_ = std::shared_ptr<Exchange>(made, [kept](const Exchange* exchange) { delete exchange; });
    // Ahead of the first round: loading it later could wait for a kernel that waits for another rank.
    if (device_.kind != Device::Kind::cuda) return;
    const auto load = [this](const AnyFormat& format) {
      if (format.encodes()) load_decoder(format, device_.index);
    };
    load(options.options.format);
    for (const DispatchFormat& other : options.options.more_formats) load(other.format);
  };
  call_waiting(*kept, make, [this] { stay_on(device_); });
}

PyExchange::~PyExchange() {
  if (!guard_->is_of_this_process()) new (std::nothrow) std::shared_ptr<Exchange>(exchange_);
  const nb::gil_scoped_release without_gil;  // it may wait for kernels, as the end of a world does
  exchange_.reset();
}

Exchange& PyExchange::exchange() const {
  if (!exchange_) throw Closed("this Exchange");
  return *exchange_;
}

void PyExchange::close(bool fails) {
  const auto lock = guard_->enter();
  // With the GIL, as stats() of another thread takes its share.
  std::shared_ptr<World> world = std::move(world_);
  std::shared_ptr<Exchange> open = std::move(exchange_);
  const nb::gil_scoped_release without_gil;
  world.reset();
  if (!fails) return open.reset();
  try {
    const std::shared_ptr<Exchange> last = std::move(open);
    throw std::runtime_error("an error of the caller");  // it destroys the exchange, which so knows of an error
  } catch (const std::runtime_error&) {
  }
}

namespace {

// CallOptions as Python has them: (deadline in seconds or None, stream as a number, max_blocks).
using PyCall = std::tuple<nb::object, std::uintptr_t, nb::object>;

// cudaStreamPerThread: another stream on another thread.
void* const kStreamOfThisThread = reinterpret_cast<void*>(2);  // NOLINT(performance-no-int-to-ptr)

// CPU ranks have no kernels. They refuse what GPUs do, so that a program is told on either.
int most_blocks(nb::handle given) {
  const int blocks = whole_as<int>("max_blocks", given);
  if (blocks < 0)
    throw Error(ErrorKind::invalid_argument,
                "max_blocks is " + std::to_string(blocks) + "; it must be 0 (no limit) or more");
  return blocks;
}

CallOptions call_options(const PyCall& call) {
  const auto& [deadline, stream, max_blocks] = call;
  return {.deadline = deadline_of("deadline", deadline),
          .stream = reinterpret_cast<void*>(stream),  // NOLINT(performance-no-int-to-ptr): Python has it as a number
          .max_blocks = most_blocks(max_blocks)};
}

void dispatch_async(PyExchange& self, const nb::dict& inputs, const PyCall& how) {
  const DispatchArguments given(inputs, self.device());
  const CallOptions call = call_options(how);
  self.call([&](Exchange& exchange) { exchange.dispatch_async(given.in, call); });
}

void dispatch(PyExchange& self, const nb::dict& inputs, const nb::dict& outputs, const PyCall& how) {
  const DispatchArguments given(inputs, self.device());
  const OutputArguments filled(outputs);
  const CallOptions call = call_options(how);
  self.call([&](Exchange& exchange) { exchange.dispatch(given.in, filled.out, call); });
}

RowCounts wait_for_counts(PyExchange& self, const PyCall& how) {
  const CallOptions call = call_options(how);
  RowCounts counts;
  const auto ask = [&](Exchange& exchange) { counts = exchange.wait_for_counts(call); };
  if (call.stream == kStreamOfThisThread)
    self.call(ask);
  else
    self.call_on_host(ask);
  return counts;
}

void dispatch_wait(PyExchange& self, const nb::dict& outputs, const PyCall& how) {
  const OutputArguments given(outputs);
  const CallOptions call = call_options(how);
  self.call([&](Exchange& exchange) { exchange.dispatch_wait(given.out, call); });
}

void combine(PyExchange& self, const nb::dict& inputs, const nb::dict& sums, const PyCall& how) {
  self.set_hook_raised(false);
  const CombineArguments given(inputs);
  const SumArguments filled(sums);
  const CallOptions call = call_options(how);
  try {
    self.call([&](Exchange& exchange) { exchange.combine(given.in, filled.out, call); });
  } catch (const Error& error) {
    throw_by_arguments(error, static_cast<bool>(given.in.topk_weights));
  } catch (...) {
    self.set_hook_raised(true);
    throw;
  }
}

void combine_async(PyExchange& self, const nb::dict& inputs, const PyCall& how) {
  const CombineArguments given(inputs);
  const CallOptions call = call_options(how);
  self.call([&](Exchange& exchange) { exchange.combine_async(given.in, call); });
}

void combine_wait(PyExchange& self, const nb::dict& sums, const PyCall& how) {
  const SumArguments given(sums);
  const CallOptions call = call_options(how);
  try {
    self.call([&](Exchange& exchange) { exchange.combine_wait(given.out, call); });
  } catch (const Error& error) {
    throw_by_arguments(error, false);
  }
}

void release(PyExchange& self, const PyCall& how) {
  const CallOptions call = call_options(how);
  self.call_on_host([&](Exchange& exchange) { exchange.release(call); });
}

void restore(PyExchange& self, const PyCall& how) {
  const CallOptions call = call_options(how);
  self.call_on_host([&](Exchange& exchange) { exchange.restore(call); });
}

void take_memory(PyExchange& self, const PyCall& how) {
  const CallOptions call = call_options(how);
  self.call_on_host([&](Exchange& exchange) { exchange.take_memory(call); });
}

void add_to_mask(PyExchange& self, const nb::iterable& ranks) {
  const RankMask mask = mask_of(ranks, self.exchange().shape().ranks);
  self.call_local([&](Exchange& exchange) { exchange.add_to_mask(mask); });
}

// Decodes each row of `outputs` that has a token into its row of `values`; the others become zeros.
void decode_rows(PyExchange& self, const nb::dict& outputs, nb::handle values, nb::handle has_token,
                 nb::handle input_scale, int format) {
  const auto scale = value_as<float>("input_scale", input_scale, kNumber);
  const OutputArguments given(outputs);
  Arrays arrays;
  const Tensor out = arrays.fill(values, "values");
  const ConstTensor tokens = arrays.read(has_token, "has_token");
  const std::int64_t hidden = self.exchange().shape().hidden;
  if (out.dtype != DType::f32 || out.rank != 2 || out.shape[1] != hidden || !out.is_contiguous() ||
      tokens.dtype != DType::u8 || tokens.rank != 1 || tokens.shape[0] != out.shape[0] || !tokens.is_contiguous())
    throw Error(ErrorKind::invalid_argument, "values is " + to_string(out) + " and has_token " + to_string(tokens) +
                                                 "; they must be f32 [rows, " + std::to_string(hidden) +
                                                 "] and u8 [rows]");
  self.call_local([&](const Exchange& exchange) {
    for (std::int64_t row = 0; row < out.shape[0]; ++row) {
      const std::span to(out.as<float>() + row * hidden, static_cast<std::size_t>(hidden));
      if (tokens.as<std::uint8_t>()[row] != 0)
        decode_row(exchange.format(format), exchange.layout(format), given.out, row, to, scale);
      else
        std::fill(to.begin(), to.end(), 0.0f);
    }
  });
}

// Decodes the rows of `outputs` on the GPU where they lie, in stream order; rows without a token become zeros.
// `place`: order of the rows, stride of experts, number of the format.
void decode_there(PyExchange& self, const nb::dict& outputs, nb::handle values, const nb::tuple& place,
                  nb::handle input_scale, std::uintptr_t stream) {
  const OutputArguments given(outputs);
  Arrays arrays;
  const Tensor out = arrays.fill(values, "values");
  const ConstTensor scale = arrays.read(input_scale, "input_scale");
  const RowPlace rows{row_order_named(nb::cast<std::string>(place[0])), nb::cast<std::int64_t>(place[1]),
                      nb::cast<int>(place[2])};
  self.call_local([&](const Exchange& exchange) { decode_on_gpu(exchange, given.out, out, rows, scale, stream); });
}

// From any thread, also while another one closes the exchange: its own share keeps what it reads.
nb::dict stats_of(PyExchange& self) {
  const std::shared_ptr<const Exchange> open = self.shared();
  if (open == nullptr) throw Closed("this Exchange");
  const Stats stats = [&] {
    const nb::gil_scoped_release without_gil;  // on a GPU it copies, maybe behind a kernel that waits for another rank
    return open->stats();
  }();
  std::vector<std::uint64_t> tokens, bytes;
  for (const ExpertTraffic& traffic : stats.received) {
    tokens.push_back(traffic.tokens);
    bytes.push_back(traffic.bytes);
  }
  nb::dict named;
  named["received_tokens"] = tokens;
  named["received_bytes"] = bytes;
  named["messages_sent"] = stats.messages_sent;
  named["bytes_sent"] = stats.bytes_sent;
  named["waited_ns"] = stats.waited_ns;
  named["non_finite_blocks"] = stats.non_finite_blocks;
  named["dropped"] = stats.dropped;
  named["dispatches"] = stats.dispatches;
  named["combines"] = stats.combines;
  return named;
}

// A view of memory of the exchange: numpy's on a CPU; on a GPU anything that takes DLPack can have it. bf16 is bits as
// uint16, unless `has_bf16`: whoever takes it knows that type.
nb::object slots_of(const ConstTensor& view, Device device, bool has_bf16, const nb::capsule& owner) {
  if (!view) return nb::none();
  nb::dlpack::dtype dtype = nb::dtype<std::uint8_t>();
  if (view.dtype == DType::f32) dtype = nb::dtype<float>();
  if (view.dtype == DType::bf16) dtype = nb::dtype<std::uint16_t>();
  if (view.dtype == DType::bf16 && has_bf16) dtype.code = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
  std::size_t shape[kMaxTensorRank];
  for (int axis = 0; axis < view.rank; ++axis) shape[axis] = static_cast<std::size_t>(view.shape[axis]);
  const auto rank = static_cast<std::size_t>(view.rank);
  if (device.kind != Device::Kind::cuda)
    return nb::cast(nb::ndarray<nb::numpy, nb::ro>(view.data, rank, shape, owner, view.strides.data(), dtype));
  // DLPack's read-only flag is refused by some who take it.
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<void*>(view.data), rank, shape, owner, view.strides.data(),
                                             dtype, nb::device::cuda::value, device.index));
}

// The views keep the memory of the exchange, also after close().
nb::tuple arrival_slots(PyExchange& self, bool has_bf16, int format) {
  const ArrivalSlots slots = self.exchange().arrival_slots(format);
  auto* kept = new std::shared_ptr<Exchange>(self.shared());
  const nb::capsule owner(kept, [](void* held) noexcept {
    const nb::gil_scoped_release without_gil;
    delete static_cast<std::shared_ptr<Exchange>*>(held);
  });
  const Device device = self.device();
  return nb::make_tuple(slots_of(slots.payload, device, has_bf16, owner),
                        slots_of(slots.scales, device, has_bf16, owner),
                        slots_of(slots.global_scales, device, has_bf16, owner));
}

void add_row_counts(nb::module_& module) {
  nb::class_<RowCounts>(module, "RowCounts")
      .def_ro("rows", &RowCounts::rows)
      .def_ro("by_expert", &RowCounts::by_expert)
      .def_ro("by_source", &RowCounts::by_source);
}

}  // namespace

void add_exchange(nb::module_& module) {
  add_row_counts(module);
  nb::class_<PyExchange>(module, "Exchange")
      .def(nb::init<PyWorld&, const Shape&, const PyOptions&, const PyExchange*>(), "world"_a, "shape"_a, "options"_a,
           "memory_of"_a.none() = nb::none())
      .def("dispatch", &dispatch, "inputs"_a, "outputs"_a, "call"_a)
      .def("combine", &combine, "inputs"_a, "sums"_a, "call"_a)
      .def("dispatch_async", &dispatch_async, "inputs"_a, "call"_a)
      .def("wait_for_counts", &wait_for_counts, "call"_a)
      .def("dispatch_wait", &dispatch_wait, "outputs"_a, "call"_a)
      .def("combine_async", &combine_async, "inputs"_a, "call"_a)
      .def("combine_wait", &combine_wait, "sums"_a, "call"_a)
      .def("check", [](PyExchange& self) { self.call([](Exchange& exchange) { exchange.check(); }); })
      .def("add_to_mask", &add_to_mask, "ranks"_a)
      .def("release", &release, "call"_a)
      .def("restore", &restore, "call"_a)
      .def("take_memory", &take_memory, "call"_a)
      .def("decode_rows", &decode_rows, "outputs"_a, "values"_a, "has_token"_a, "input_scale"_a.none(), "format"_a = 0)
      .def("decode_on_gpu", &decode_there, "outputs"_a, "values"_a, "place"_a, "input_scale"_a.none(), "stream"_a)
      .def("stats", &stats_of)
      .def("arrival_slots", &arrival_slots, "has_bf16"_a = false, "format"_a = 0)
      .def("close", &PyExchange::close, "fails"_a)
      .def_prop_ro("closed", &PyExchange::is_closed)
      .def_prop_ro("hook_raised", &PyExchange::has_hook_raised)
      .def_prop_ro("device", [](const PyExchange& self) { return to_string(self.device()); })
      .def_prop_ro("shape", [](const PyExchange& self) { return self.exchange().shape(); })
      .def_prop_ro("layout", [](const PyExchange& self) { return self.exchange().layout(); })
      .def(
          "layout_in", [](const PyExchange& self, int format) { return self.exchange().layout(format); }, "format"_a)
      .def_prop_ro("rank", [](const PyExchange& self) { return self.exchange().rank(); })
      .def_prop_ro("memory_bytes", [](const PyExchange& self) { return self.exchange().memory_bytes(); });
}

}  // namespace ferry::python
