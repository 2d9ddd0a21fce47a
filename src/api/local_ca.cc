#include "api/local_ca.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "http/url.h"

namespace llorch::api {
namespace {

namespace fs = std::filesystem;

constexpr long kDay = 24 * 60 * 60;
constexpr long kCaDays = 3650;
constexpr long kServerDays = 90;
constexpr long kRenewDays = 30;  // what must be left
constexpr long kClockSkew = 3600;
constexpr int kSerialBits = 127;
constexpr std::size_t kPemBytesMax = 64 * 1024;
constexpr std::size_t kNamesMax = 64;
constexpr std::size_t kDnsNameMax = 253;
constexpr std::chrono::milliseconds kLockPatience{10'000};

const base::Logger& logger() {
  static const base::Logger instance("tls");
  return instance;
}

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Memory = std::unique_ptr<BIO, Free>;

// A certificate with its key.
struct Identity {
  Key key;
  Certificate certificate;
};

Error failure(std::string_view what) {
  return {ErrorCode::Internal, fmt::format("this system's OpenSSL cannot {}", what)};
}

fs::path folder_of(const base::Home& home) {
  return home.data / "tls";
}
fs::path private_ca_file(const base::Home& home) {
  return folder_of(home) / "ca-private.pem";
}

// --- PEM ---

template <class Write>
std::string to_pem(Write write) {
  const Memory out(BIO_new(BIO_s_mem()));
  char* bytes = nullptr;
  if (!out || write(out.get()) != 1) return {};
  const long size = BIO_get_mem_data(out.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  return to_pem([certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

std::string pem_of(EVP_PKEY* key) {
  return to_pem([key](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

Certificate read_certificate(const std::string& pem) {
  const Memory in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return Certificate(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
}

// A certificate and the key that belongs to it; nothing where either is missing.
std::optional<Identity> read_identity(const std::string& pem) {
  Identity identity;
  identity.certificate = read_certificate(pem);
  const Memory in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // Our keys have no password; without this the library would ask for one in the terminal.
  char none[] = "";
  identity.key.reset(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, none));
  if (!identity.certificate || !identity.key ||
      X509_check_private_key(identity.certificate.get(), identity.key.get()) != 1)
    return std::nullopt;
  return identity;
}

// --- making certificates ---

bool add_extension(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
  const bool is_added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return is_added;
}

bool set_serial(X509* certificate) {
  const std::unique_ptr<BIGNUM, Free> number(BN_new());
  return number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_subject(X509* certificate, const std::string& name) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
  return X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>("llama-orch"), -1, -1,
                                    0) == 1 &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1;
}

// What a certificate is to say.
struct Wish {
  std::string subject;
  std::string names;  // empty: an authority, signed by itself
  std::time_t now = 0;
  std::time_t until = 0;
};

Result<Identity> make_identity(const Wish& wish, const Identity* issuer) {
  Identity made{Key(EVP_EC_gen("P-256")), Certificate(X509_new())};
  if (!made.key || !made.certificate) return failure("make a key");
  X509* certificate = made.certificate.get();
  X509* signer = issuer != nullptr ? issuer->certificate.get() : certificate;
  EVP_PKEY* signing = issuer != nullptr ? issuer->key.get() : made.key.get();
  bool is_good =
      X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
      set_subject(certificate, wish.subject) && X509_set_pubkey(certificate, made.key.get()) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(certificate), wish.now - kClockSkew) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate), wish.until) != nullptr &&
      X509_set_issuer_name(certificate, X509_get_subject_name(signer)) == 1 &&
      add_extension(certificate, signer, NID_subject_key_identifier, "hash");
  if (issuer == nullptr) {
    is_good =
        is_good &&
        add_extension(certificate, signer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(certificate, signer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    is_good = is_good &&
              add_extension(certificate, signer, NID_basic_constraints, "critical,CA:FALSE") &&
              add_extension(certificate, signer, NID_key_usage, "critical,digitalSignature") &&
              add_extension(certificate, signer, NID_ext_key_usage, "serverAuth") &&
              add_extension(certificate, signer, NID_authority_key_identifier, "keyid") &&
              add_extension(certificate, signer, NID_subject_alt_name, wish.names);
  }
  if (!is_good || X509_sign(certificate, signing, EVP_sha256()) <= 0)
    return failure(fmt::format("make a certificate for {}", wish.subject));
  return made;
}

// --- reading certificates ---

std::time_t end_of(const X509* certificate) {
  std::tm parts{};
  return ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) == 1 ? ::timegm(&parts) : 0;
}

bool lasts(const X509* certificate, std::time_t now) {
  return end_of(certificate) - now > kRenewDays * kDay;
}

std::string fingerprint_of(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  std::string text;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{}{:02X}", i > 0 ? ":" : "", digest[i]);
  return text;
}

std::string address_text(const unsigned char* bytes, int size) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = size == 4 ? AF_INET : AF_INET6;
  if ((size != 4 && size != 16) || ::inet_ntop(family, bytes, text.data(), text.size()) == nullptr)
    return {};
  return text.data();
}

std::vector<std::string> names_in(const X509* certificate) {
  std::vector<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, Free> all(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; all && i < sk_GENERAL_NAME_num(all.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all.get(), i);
    const ASN1_STRING* value = nullptr;
    if (name->type == GEN_DNS) value = name->d.dNSName;
    if (name->type == GEN_IPADD) value = name->d.iPAddress;
    if (value == nullptr) continue;
    const unsigned char* bytes = ASN1_STRING_get0_data(value);
    const int size = ASN1_STRING_length(value);
    names.push_back(name->type == GEN_DNS
                        ? "DNS:" + std::string(reinterpret_cast<const char*>(bytes),
                                               static_cast<std::size_t>(size))
                        : "IP:" + address_text(bytes, size));
  }
  return names;
}

// --- names ---

// "DNS:…" or "IP:…"; nothing for what can be neither: the library would read a list out of it.
std::string name_for_certificate(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1)
    return "IP:" + address_text(bytes.data(), 4);
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1)
    return "IP:" + address_text(bytes.data(), 16);
  const bool is_name = !text.empty() && text.size() <= kDnsNameMax && text.front() != '-' &&
                       std::all_of(text.begin(), text.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                                c == '*';
                       });
  return is_name ? "DNS:" + text : std::string();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      all.push_back(address_text(reinterpret_cast<const unsigned char*>(&address->sin_addr), 4));
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      // A link's own address means nothing without the link, which a certificate cannot name.
      if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
        all.push_back(address_text(address->sin6_addr.s6_addr, 16));
    }
  }
  ::freeifaddrs(list);
  return all;
}

Result<std::unique_ptr<base::FileLock>> lock_folder(const base::Home& home) {
  if (Status made = base::make_private_folder(folder_of(home)); !made.ok()) return made.error();
  base::make_private(folder_of(home));
  return base::FileLock::acquire(folder_of(home) / "lock", kLockPatience);
}

// --- the authority, under the lock ---

Error damaged_ca(const fs::path& file) {
  return {ErrorCode::Corrupt,
          fmt::format("{} holds no certificate with its key; put back a copy of it, or remove it "
                      "and everything that trusts it gets a new authority (`llorch ca`)",
                      file.string())};
}

Status keep_old_ca(const base::Home& home, const Identity& old) {
  std::string name = fingerprint_of(old.certificate.get()).substr(0, 11);
  std::erase(name, ':');
  return base::write_file_atomically(folder_of(home) / fmt::format("ca-{}.pem", name),
                                     pem_of(old.certificate.get()));
}

Result<Identity> make_ca(const base::Home& home, std::time_t now) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  Wish wish;
  wish.subject = fmt::format("llama-orch CA of {}", host.data()).substr(0, 64);
  wish.now = now;
  wish.until = now + kCaDays * kDay;
  Result<Identity> made = make_identity(wish, nullptr);
  if (!made.ok()) return made;
  const std::string pem = pem_of(made->certificate.get());
  // One file has both halves: a crash leaves all of it or nothing.
  if (Status kept =
          base::write_file_atomically(private_ca_file(home), pem + pem_of(made->key.get()));
      !kept.ok())
    return kept.error();
  logger().info(
      "a certificate authority was made",
      {{"file", ca_file(home).string()}, {"fingerprint", fingerprint_of(made->certificate.get())}});
  return made;
}

struct OpenCa {
  Identity identity;
  bool was_made = false;
};

Result<OpenCa> open_ca(const base::Home& home, std::time_t now) {
  const fs::path file = private_ca_file(home);
  std::error_code error;
  OpenCa ca;
  if (fs::exists(file, error) && !error) {
    base::make_private(file);
    const Result<std::string> pem = base::read_text_file(file, kPemBytesMax);
    if (!pem.ok()) return pem.error();
    std::optional<Identity> found = read_identity(*pem);
    if (!found) return damaged_ca(file);
    ca.identity = std::move(*found);
    if (lasts(ca.identity.certificate.get(), now)) {
      // Made from the private one, so that the two never disagree.
      const std::string wanted = pem_of(ca.identity.certificate.get());
      const Result<std::string> shown = base::read_text_file(ca_file(home), kPemBytesMax);
      if (shown.ok() && *shown == wanted) return ca;
      if (Status written = base::write_file_atomically(ca_file(home), wanted); !written.ok())
        return written.error();
      return ca;
    }
    logger().warn("the certificate authority ends: a new one is made, trust it again",
                  {{"file", ca_file(home).string()}});
    if (Status kept = keep_old_ca(home, ca.identity); !kept.ok()) return kept.error();
  }
  Result<Identity> made = make_ca(home, now);
  if (!made.ok()) return made.error();
  if (Status written = base::write_file_atomically(ca_file(home), pem_of(made->certificate.get()));
      !written.ok())
    return written.error();
  return OpenCa{made.take(), true};
}

// Whether the server may go on with what the file holds.
bool is_good_certificate(const fs::path& file, const Identity& ca,
                         const std::vector<std::string>& names, std::time_t now) {
  const Result<std::string> pem = base::read_text_file(file, kPemBytesMax);
  if (!pem.ok()) return false;
  const std::optional<Identity> found = read_identity(*pem);
  if (!found || X509_verify(found->certificate.get(), ca.key.get()) != 1) return false;
  const std::vector<std::string> has = names_in(found->certificate.get());
  return lasts(found->certificate.get(), now) &&
         std::all_of(names.begin(), names.end(), [&has](const std::string& name) {
           return std::find(has.begin(), has.end(), name) != has.end();
         });
}

}  // namespace

std::filesystem::path ca_file(const base::Home& home) {
  return folder_of(home) / "ca.pem";
}

Result<CaFacts> find_or_make_ca(const base::Home& home, std::time_t now) {
  const auto lock = lock_folder(home);
  if (!lock.ok()) return lock.error();
  const Result<OpenCa> ca = open_ca(home, now);
  if (!ca.ok()) return ca.error();
  X509* certificate = ca->identity.certificate.get();
  const std::time_t end = end_of(certificate);
  std::tm parts{};
  ::gmtime_r(&end, &parts);
  return CaFacts{
      pem_of(certificate), fingerprint_of(certificate),
      fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday),
      ca->was_made};
}

std::vector<std::string> names_of_server(const std::string& host,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  if (!http::is_any_address(host)) all.push_back(host);
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) all.emplace_back(name.data());
  all.insert(all.end(), {"localhost", "127.0.0.1", "::1"});
  for (std::string& address : own_addresses()) all.push_back(std::move(address));
  std::vector<std::string> names;
  for (const std::string& one : all) {
    std::string written = name_for_certificate(one);
    if (written.empty() || std::find(names.begin(), names.end(), written) != names.end()) continue;
    if (names.size() < kNamesMax) names.push_back(std::move(written));
  }
  return names;
}

Result<ServerCertificate> find_or_make_certificate(const base::Home& home, std::string_view name,
                                                   const std::vector<std::string>& names,
                                                   std::time_t now) {
  const auto lock = lock_folder(home);
  if (!lock.ok()) return lock.error();
  const Result<OpenCa> ca = open_ca(home, now);
  if (!ca.ok()) return ca.error();
  ServerCertificate certificate{folder_of(home) / fmt::format("{}.pem", name), false};
  if (is_good_certificate(certificate.file, ca->identity, names, now)) return certificate;
  Wish wish;
  wish.subject = fmt::format("llama-orch {}", name).substr(0, 64);
  for (const std::string& one : names) wish.names += (wish.names.empty() ? "" : ",") + one;
  wish.now = now;
  wish.until = std::min(now + kServerDays * kDay, end_of(ca->identity.certificate.get()));
  const Result<Identity> made = make_identity(wish, &ca->identity);
  if (!made.ok()) return made.error();
  const std::string pem = pem_of(made->certificate.get()) + pem_of(ca->identity.certificate.get()) +
                          pem_of(made->key.get());
  if (Status written = base::write_file_atomically(certificate.file, pem); !written.ok())
    return written.error();
  certificate.was_made = true;
  logger().info("a certificate was made",
                {{"file", certificate.file.string()}, {"names", wish.names}});
  return certificate;
}

std::vector<std::string> names_in_certificate(const std::filesystem::path& file) {
  const Result<std::string> pem = base::read_text_file(file, kPemBytesMax);
  const Certificate certificate = pem.ok() ? read_certificate(*pem) : nullptr;
  return certificate ? names_in(certificate.get()) : std::vector<std::string>();
}

}  // namespace llorch::api
