// SPDX-License-Identifier: Apache-2.0
// FunctionRef<R(Args...)>: a reference to something callable, for arguments that are called before
// the callee returns. It neither owns nor copies the callable and never allocates; the callable
// must outlive it, so it is a parameter type and not a member to keep.
//
//   void each(std::size_t n, FunctionRef<void(std::size_t)> body);
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace lemma::base {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_object_v<std::remove_reference_t<F>> && std::is_invocable_r_v<R, F&, Args...>)
      // NOLINTNEXTLINE: implicit by design, callers pass lambdas
      FunctionRef(F&& callable)
  noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace lemma::base
