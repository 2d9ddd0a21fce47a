// For tests only: certificate authorities and certificates, made with the library's own calls.
#pragma once

#include <openssl/types.h>

#include <filesystem>
#include <memory>
#include <string>

namespace llorch::http::test {

// What a certificate is to say.
struct CertificateWish {
  std::string names = "DNS:localhost,IP:127.0.0.1";  // as OpenSSL's subjectAltName takes them
  long valid_from_s = -3600;                         // from now
  long valid_to_s = 3600;
};

class TestCa {
 public:
  explicit TestCa(std::filesystem::path folder);
  ~TestCa();
  TestCa(const TestCa&) = delete;
  TestCa& operator=(const TestCa&) = delete;

  std::string file() const;  // PEM, for a client's ca_file

  struct Files {
    std::string certificate;
    std::string key;
  };
  // Under a name of its own in the folder.
  Files issue(const std::string& name, const CertificateWish& wish = {});

 private:
  struct Parts;
  std::filesystem::path folder_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace llorch::http::test
