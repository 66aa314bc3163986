// SPDX-License-Identifier: Apache-2.0
#include "weights/lazy_bytes.hpp"

namespace lemma::weights {

std::shared_ptr<const base::AlignedBuffer> LazyBytes::get() const {
  const std::lock_guard lock(mutex_);
  if (auto made = made_.lock()) return made;
  auto buffer =
      std::make_shared<base::AlignedBuffer>(base::AlignedBuffer::uninitialized(std::size_t(size_)));
  make_(buffer->bytes());
  made_ = buffer;
  return buffer;
}

}  // namespace lemma::weights
