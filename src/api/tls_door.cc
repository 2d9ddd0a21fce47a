#include "api/tls_door.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <utility>

#include "api/local_ca.h"
#include "base/log.h"
#include "http/url.h"

namespace llorch::api {
namespace {

constexpr std::chrono::seconds kLookPause{20};

const base::Logger& logger() {
  static const base::Logger instance("tls");
  return instance;
}

}  // namespace

void describe_tls_flags(CLI::App& app, TlsFlags& flags) {
  app.add_option("--tls-cert", flags.certificate_file,
                 "PEM file with the certificate for TLS and those above it; beyond loopback, "
                 "without it, one of this home's own authority (`llorch ca`)")
      ->type_name("FILE");
  app.add_option("--tls-key", flags.key_file, "PEM file with its key")->type_name("FILE");
  app.add_option("--tls-name", flags.names,
                 "a further name or address for the home's own certificate; may be repeated")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("NAME");
  app.add_flag("--plain-http", flags.plain_http,
               "no TLS beyond loopback: keys and texts can be read on the way");
}

Result<TlsDoor> TlsDoor::open(const TlsFlags& flags, const base::Home& home, std::string_view name,
                              const std::string& host) {
  const bool has_files = !flags.certificate_file.empty() || !flags.key_file.empty();
  if (has_files && (flags.certificate_file.empty() || flags.key_file.empty())) {
    return Error{ErrorCode::InvalidArgument,
                 "--tls-cert and --tls-key belong together; one of them is missing"};
  }
  if (has_files && flags.plain_http) {
    return Error{ErrorCode::InvalidArgument,
                 "--plain-http and --tls-cert contradict each other; leave one out"};
  }
  TlsDoor door(flags, home, std::string(name), host);
  if (has_files) {
    door.certificate_file_ = flags.certificate_file;
    door.key_file_ = flags.key_file;
  } else if (http::is_loopback(host)) {
    return door;
  } else if (flags.plain_http) {
    logger().warn("plain HTTP beyond loopback: keys and texts can be read on the way",
                  {{"host", host}});
    return door;
  } else {
    door.is_own_authority_ = true;
    if (Status made = door.make_certificate(); !made.ok()) return made.error();
  }
  door.seen_ = door.stamps();
  return door;
}

Status TlsDoor::make_certificate() {
  const Result<ServerCertificate> certificate = find_or_make_certificate(
      home_, name_, names_of_server(host_, flags_.names), std::time(nullptr));
  if (!certificate.ok()) return certificate.error();
  certificate_file_ = certificate->file.string();
  key_file_ = certificate_file_;
  return ok_status();
}

TlsDoor::Stamps TlsDoor::stamps() const {
  return {base::stamp_of(certificate_file_), base::stamp_of(key_file_)};
}

void TlsDoor::look(http::Server& server) {
  const auto time = std::chrono::steady_clock::now();
  if (!is_tls() || time < next_look_) return;
  next_look_ = time + kLookPause;
  Status good = is_own_authority_ ? make_certificate() : ok_status();
  const Stamps now = stamps();
  if (good.ok() && now == seen_) return;
  if (good.ok()) good = server.reload_tls();
  seen_ = now;  // a file that is not good is told once
  if (good.ok()) {
    logger().info("a new certificate is shown from now on", {{"file", certificate_file_}});
  } else {
    logger().error("the certificate could not be renewed: the old one stays",
                   {{"why", good.error().message}});
  }
}

}  // namespace llorch::api
