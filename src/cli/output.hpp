// SPDX-License-Identifier: Apache-2.0
// Standard streams: results out, input in, byte for byte and unbuffered. A reader that closes the
// pipe is no failure: it has what it wanted (`lemma run ... | head -1`). Writing then throws
// OutputClosed, and the program ends quietly with status 0. Any other failed write is an Error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lemma::cli {

/// The reader of stdout has gone away.
struct OutputClosed {};

/// Writes all of `bytes` to stdout at once. Throws OutputClosed, or Error(kIo).
void write_out(std::string_view bytes);
/// The same to stderr; what cannot be written there is dropped.
void write_err(std::string_view bytes) noexcept;

bool stdout_is_terminal() noexcept;
bool stderr_is_terminal() noexcept;

/// Standard input to its end. Throws Error(kIo).
std::string read_stdin();
/// A whole file. Throws Error(kNotFound or kIo) naming it.
std::string read_file(const std::filesystem::path& path);

/// "12.3 MiB"
std::string format_bytes(std::uint64_t bytes);

}  // namespace lemma::cli
