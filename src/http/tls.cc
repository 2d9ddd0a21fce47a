#include "http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <filesystem>
#include <string_view>
#include <utility>

namespace llorch::http {

namespace asio = boost::asio;
namespace ssl = asio::ssl;

namespace {

Error bad_file(std::string_view what, const std::string& file,
               const boost::system::error_code& error) {
  return {ErrorCode::InvalidArgument,
          fmt::format("{} {}: {}; expected a PEM file", what, file, error.message())};
}

Result<TlsContext> make_context(ssl::context::method method) {
  auto context = std::make_shared<ssl::context>(method);
  if (SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_3_VERSION) != 1)
    return Error{ErrorCode::Unsupported, "this system's OpenSSL has no TLS 1.3"};
  return context;
}

std::string describe_time(const ASN1_TIME* time) {
  BIO* out = BIO_new(BIO_s_mem());
  std::string text = "an unknown time";
  if (out != nullptr && ASN1_TIME_print(out, time) == 1) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out, &bytes);
    text.assign(bytes, static_cast<std::size_t>(size));
  }
  BIO_free(out);
  return text;
}

// Of the certificate that the peer showed.
std::string describe_validity(SSL* ssl, bool is_end) {
  const X509* shown = SSL_get0_peer_certificate(ssl);
  if (shown == nullptr) return "an unknown time";
  return describe_time(is_end ? X509_get0_notAfter(shown) : X509_get0_notBefore(shown));
}

std::string explain_certificate(SSL* ssl, long result, const std::string& host) {
  switch (result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return fmt::format("its certificate expired on {}; whoever runs it must renew it",
                         describe_validity(ssl, true));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return fmt::format("its certificate is valid from {} on only; look at the clocks",
                         describe_validity(ssl, false));
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return fmt::format(
          "its certificate is not for '{}'; use a name or address that is in it, or have it made "
          "anew",
          host);
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:  // another one of the same name
      return "its certificate comes from an authority (CA) that is not trusted here; name the file "
             "of its CA";
    default:
      return fmt::format("its certificate is not accepted: {}",
                         X509_verify_cert_error_string(result));
  }
}

}  // namespace

Result<TlsContext> make_server_tls(const std::string& certificate_file,
                                   const std::string& key_file) {
  Result<TlsContext> context = make_context(ssl::context::tls_server);
  if (!context.ok()) return context;
  boost::system::error_code error;
  (*context)->use_certificate_chain_file(certificate_file, error);
  if (error) return bad_file("TLS certificate", certificate_file, error);
  (*context)->use_private_key_file(key_file, ssl::context::pem, error);
  if (error) return bad_file("TLS key", key_file, error);
  if (SSL_CTX_check_private_key((*context)->native_handle()) != 1) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the TLS key {} does not belong to the certificate {}", key_file,
                             certificate_file)};
  }
  return context;
}

Result<TlsContext> make_client_tls(const std::string& ca_file, const std::string& more_ca_file) {
  Result<TlsContext> context = make_context(ssl::context::tls_client);
  if (!context.ok()) return context;
  boost::system::error_code error;
  if (ca_file.empty()) {
    (*context)->set_default_verify_paths(error);
  } else {
    (*context)->load_verify_file(ca_file, error);
  }
  if (error) return bad_file("CA certificates", ca_file.empty() ? "of the system" : ca_file, error);
  std::error_code ignored;
  if (ca_file.empty() && std::filesystem::exists(more_ca_file, ignored)) {
    (*context)->load_verify_file(more_ca_file, error);
    if (error) return bad_file("CA certificates", more_ca_file, error);
  }
  (*context)->set_verify_mode(ssl::verify_peer, error);
  return context;
}

bool expect_host(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
  boost::system::error_code no_address;
  asio::ip::make_address(host, no_address);
  if (!no_address) return X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1;
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) == 1 &&
         SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  const_cast<char*>(host.c_str())) == 1;
}

bool is_plain_http(const boost::system::error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

Error explain_handshake(SSL* ssl, const boost::system::error_code& error, const std::string& host) {
  const long result = SSL_get_verify_result(ssl);
  if (result != X509_V_OK) return {ErrorCode::Unauthorized, explain_certificate(ssl, result, host)};
  if (error.category() == asio::error::get_ssl_category()) {
    const auto reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
        reason == SSL_R_HTTP_REQUEST)
      return {ErrorCode::Unavailable, "it does not speak TLS; is its address http:// instead?"};
    if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
      return {ErrorCode::Unavailable, "it does not speak TLS 1.3, which is asked for here"};
  }
  return {ErrorCode::Unavailable, fmt::format("the TLS handshake failed: {}", error.message())};
}

}  // namespace llorch::http
