// SPDX-License-Identifier: Apache-2.0
#include "runtime/job.hpp"

#include <exception>
#include <new>

namespace lemma::runtime {

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kOutOfMemory, "the system's memory is exhausted"};
  } catch (const std::exception& error) {
    return {ErrorKind::kInternal, error.what()};
  } catch (...) {
    return {ErrorKind::kInternal, "an exception of an unknown type"};
  }
}

}  // namespace lemma::runtime
