// Hashes of streams of bytes, by OpenSSL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace llorch::base {

// Sha1 is for git's names of things only: it proves nothing against somebody who wants to deceive.
enum class DigestKind : std::uint8_t { Sha256, Sha512, Sha1 };

// Feed bytes in order, then finish once. One thread.
class Digest {
 public:
  explicit Digest(DigestKind kind = DigestKind::Sha256);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text);
  std::string finish_hex();     // lower case
  std::string finish_base64();  // with padding

 private:
  std::string finish();

  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view text);

// Whether a secret that somebody gave is the expected one. The time it takes tells nothing about
// where the two differ. An empty one is never right.
bool is_same_secret(std::string_view given, std::string_view expected);

}  // namespace llorch::base
