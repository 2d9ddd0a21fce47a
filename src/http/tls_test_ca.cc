#include "http/tls_test_ca.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "base/check.h"

namespace llorch::http::test {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr, "no key was made");
  return key;
}

void add_extension(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
  CHECK(extension != nullptr, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate make_certificate(EVP_PKEY* key, const std::string& name, const CertificateWish& wish,
                             X509* issuer, EVP_PKEY* issuer_key) {
  static long serial = 1;
  Certificate made(X509_new());
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), wish.valid_from_s);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), wish.valid_to_s);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* signer = issuer != nullptr ? issuer : made.get();
  X509_set_issuer_name(made.get(), X509_get_subject_name(signer));
  add_extension(made.get(), signer, NID_basic_constraints,
                issuer == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (issuer == nullptr) {
    add_extension(made.get(), signer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    add_extension(made.get(), signer, NID_subject_alt_name, wish.names);
  }
  CHECK(X509_sign(made.get(), issuer_key, EVP_sha256()) > 0, "no signature was made");
  return made;
}

template <class Write>
std::string write_pem(const std::filesystem::path& file, Write write) {
  std::FILE* out = std::fopen(file.c_str(), "w");
  CHECK(out != nullptr, file.string());
  write(out);
  std::fclose(out);
  return file.string();
}

}  // namespace

struct TestCa::Parts {
  Key key;
  Certificate certificate;
};

TestCa::TestCa(std::filesystem::path folder)
    : folder_(std::move(folder)), parts_(std::make_unique<Parts>()) {
  std::filesystem::create_directories(folder_);
  parts_->key = make_key();
  parts_->certificate =
      make_certificate(parts_->key.get(), "test CA", {}, nullptr, parts_->key.get());
  write_pem(file(), [this](std::FILE* out) { PEM_write_X509(out, parts_->certificate.get()); });
}

TestCa::~TestCa() = default;

std::string TestCa::file() const {
  return (folder_ / "ca.pem").string();
}

TestCa::Files TestCa::issue(const std::string& name, const CertificateWish& wish) {
  const Key key = make_key();
  const Certificate made =
      make_certificate(key.get(), name, wish, parts_->certificate.get(), parts_->key.get());
  Files files;
  files.certificate = write_pem(folder_ / (name + ".pem"),
                                [&made](std::FILE* out) { PEM_write_X509(out, made.get()); });
  files.key = write_pem(folder_ / (name + ".key"), [&key](std::FILE* out) {
    PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

}  // namespace llorch::http::test
