#include "base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace llorch::base {

namespace {

const EVP_MD* algorithm_of(DigestKind kind) {
  switch (kind) {
    case DigestKind::Sha512:
      return EVP_sha512();
    case DigestKind::Sha1:
      return EVP_sha1();
    case DigestKind::Sha256:
      break;
  }
  return EVP_sha256();
}

}  // namespace

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest(DigestKind kind) : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr &&
            EVP_DigestInit_ex(state_->context, algorithm_of(kind), nullptr) == 1,
        "OpenSSL has no such digest");
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "digest update");
}

void Digest::add(std::string_view text) {
  add(std::as_bytes(std::span(text)));
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, bytes.data(), &size) == 1, "digest end");
  return {bytes.begin(), bytes.begin() + size};
}

std::string Digest::finish_hex() {
  std::string hex;
  for (const char c : finish())
    fmt::format_to(std::back_inserter(hex), "{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::string Digest::finish_base64() {
  const std::string bytes = finish();
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  std::copy(bytes.begin(), bytes.end(), raw.begin());
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> encoded{};
  const int length = EVP_EncodeBlock(encoded.data(), raw.data(), static_cast<int>(bytes.size()));
  return {encoded.begin(), encoded.begin() + length};
}

std::string sha256_hex(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.finish_hex();
}

bool is_same_secret(std::string_view given, std::string_view expected) {
  if (expected.empty()) return false;
  // No early exit and no branch on the content.
  volatile unsigned difference = given.size() == expected.size() ? 0u : 1u;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected[i % expected.size()];
    difference =
        difference | (static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other));
  }
  return difference == 0;
}

}  // namespace llorch::base
