// The certificate authority of a home, and the certificates that it gives to the home's own
// servers. Made on first use, with a key that stays in the home; whoever trusts the authority
// trusts them all, also after they were renewed.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/result.h"

namespace llorch::api {

// The authority's certificate, PEM, for clients to trust; whether it is there is not asked.
std::filesystem::path ca_file(const base::Home& home);

struct CaFacts {
  std::string pem;
  std::string fingerprint;  // SHA-256, as `openssl x509 -fingerprint -sha256` writes it
  std::string valid_until;  // "2036-11-13"
  bool was_made = false;    // just now
};

// Reads it, or makes it where there is none (or one that ends within a month; the old one is kept
// beside it). An error names the file that is damaged: what people trust is not replaced silently.
Result<CaFacts> find_or_make_ca(const base::Home& home, std::time_t now);

// How others may call a server on `host` of this machine: its names and addresses, `host` itself
// where it is one address, and `more`, as certificates write them: "DNS:box", "IP:192.0.2.7".
std::vector<std::string> names_of_server(const std::string& host,
                                         const std::vector<std::string>& more);

struct ServerCertificate {
  std::filesystem::path file;  // PEM: the certificate, the authority's, and the key
  bool was_made = false;       // just now
};

// The certificate of the server `name` ("orchestrator") of this home. It is valid for 90 days and
// made anew when 30 are left, when it lacks one of `names`, or when it is damaged.
Result<ServerCertificate> find_or_make_certificate(const base::Home& home, std::string_view name,
                                                   const std::vector<std::string>& names,
                                                   std::time_t now);

// The names in a certificate of a PEM file, as above; empty where there is none.
std::vector<std::string> names_in_certificate(const std::filesystem::path& file);

}  // namespace llorch::api
