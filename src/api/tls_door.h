// How a daemon's port speaks beyond loopback: TLS with files of its owner, TLS with a certificate
// of the home's own authority, or plain HTTP where somebody asked for it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/home.h"
#include "base/positioned_file.h"
#include "base/result.h"
#include "http/server.h"

namespace CLI {
class App;
}

namespace llorch::api {

struct TlsFlags {
  std::string certificate_file;    // --tls-cert
  std::string key_file;            // --tls-key
  std::vector<std::string> names;  // --tls-name
  bool plain_http = false;         // --plain-http
};

void describe_tls_flags(CLI::App& app, TlsFlags& flags);

// One port's TLS files, kept fresh. Owned by the main thread.
class TlsDoor {
 public:
  // `name`: of the server, in its certificate and file. Makes authority and certificate where they
  // are needed. InvalidArgument where the flags contradict each other.
  static Result<TlsDoor> open(const TlsFlags& flags, const base::Home& home, std::string_view name,
                              const std::string& host);

  bool is_tls() const { return !certificate_file_.empty(); }
  // Whether the files are their owner's: nobody here knows which names they are for.
  bool has_owners_files() const { return is_tls() && !is_own_authority_; }
  const std::string& certificate_file() const { return certificate_file_; }
  const std::string& key_file() const { return key_file_; }

  // Makes the certificate anew before it ends or when this machine has another name or address, and
  // hands the server what has changed, also files that their owner renewed. Cheap: call it now and
  // then.
  void look(http::Server& server);

 private:
  TlsDoor(TlsFlags flags, base::Home home, std::string name, std::string host)
      : flags_(std::move(flags)),
        home_(std::move(home)),
        name_(std::move(name)),
        host_(std::move(host)) {}
  Status make_certificate();
  using Stamps = std::pair<std::optional<base::FileStamp>, std::optional<base::FileStamp>>;
  Stamps stamps() const;

  TlsFlags flags_;
  base::Home home_;
  std::string name_;
  std::string host_;
  bool is_own_authority_ = false;
  std::string certificate_file_;  // empty: plain
  std::string key_file_;
  std::chrono::steady_clock::time_point next_look_;
  Stamps seen_;  // of both files, as the server last read them
};

}  // namespace llorch::api
