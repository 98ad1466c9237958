#include "support/emulated_gpu/fiber.h"

#include <memory>

namespace ferry::emulated {
namespace {

struct StackOfPool {
  Stacks* stacks;
  std::byte* stack;

  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.size = Stacks::kBytes;
    context.sp = stack + Stacks::kBytes;
    return context;
  }
  void deallocate(boost::context::stack_context& context) const {
    stacks->give_back(static_cast<std::byte*>(context.sp) - context.size);
  }
};

}  // namespace

std::byte* Stacks::take() {
  if (free_.empty()) {
    memory_.push_back(std::unique_ptr<std::byte[]>(new std::byte[kAtOnce * kBytes]));
    for (std::size_t i = kAtOnce; i > 0; --i) free_.push_back(memory_.back().get() + (i - 1) * kBytes);
  }
  std::byte* const stack = free_.back();
  free_.pop_back();
  return stack;
}

void Fiber::start(Stacks& stacks, void (*body)(void*), void* argument) {
  std::byte* const stack = stacks.take();
  stack_ = stack;
  inside_ = boost::context::fiber(std::allocator_arg, StackOfPool{&stacks, stack},
                                  [this, body, argument](boost::context::fiber&& outside) {
                                    outside_ = std::move(outside);
                                    end_switch(nullptr, &outside_bottom_, &outside_bytes_);
                                    body(argument);
                                    begin_switch(nullptr, outside_bottom_, outside_bytes_);
                                    return std::move(outside_);
                                  });
}

}  // namespace ferry::emulated
