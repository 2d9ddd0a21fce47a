// TLS: contexts of servers and clients, and what went wrong in plain words. Private to http/; only
// Transport and those who make one use it. TLS 1.3 alone: both ends are ours, and what browsers and
// curl of the last years speak.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

#include <memory>
#include <string>

#include "base/result.h"

namespace llorch::http {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// PEM files: the certificate with the chain behind it, and its key.
Result<TlsContext> make_server_tls(const std::string& certificate_file,
                                   const std::string& key_file);
// `ca_file`: PEM; only these are believed. Empty: those of the system and of `more_ca_file`, where
// there is such a file.
Result<TlsContext> make_client_tls(const std::string& ca_file, const std::string& more_ca_file);

// What a client asks of the peer's certificate: that it is for this host, a name or an address.
bool expect_host(SSL* ssl, const std::string& host);

// Whether a server's handshake failed because the client speaks HTTP without TLS.
bool is_plain_http(const boost::system::error_code& error);

// Why a client's handshake failed, and what to do: Unauthorized where the certificate is the
// reason, else Unavailable.
Error explain_handshake(SSL* ssl, const boost::system::error_code& error, const std::string& host);

}  // namespace llorch::http
