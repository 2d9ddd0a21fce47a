#include "api/daemon_address.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "api/daemon.h"
#include "api/local_ca.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/version.h"
#include "http/url.h"

namespace llorch::api {
namespace {

constexpr std::size_t kAddressBytesMax = 4096;

}  // namespace

Status write_daemon_address(const std::filesystem::path& file, const std::string& url,
                            const std::string& socket, bool prefers_socket,
                            const std::string& host) {
  const std::optional<base::ProcessIdentity> self = base::identify_process(::getpid());
  json::Object object{{"pid", ::getpid()}, {"url", url}, {"version", base::version()}};
  if (!socket.empty()) object["socket"] = socket;
  if (!socket.empty() && prefers_socket) object["prefers_socket"] = true;
  if (!host.empty()) object["host"] = host;
  if (self) {
    object["start_ticks"] = self->start_ticks;
    object["boot_id"] = self->boot_id;
  }
  return base::write_file_atomically(file, json::serialize(object) + "\n");
}

std::optional<DaemonAddress> read_daemon_address(const std::filesystem::path& file) {
  const Result<std::string> text = base::read_text_file(file, kAddressBytesMax);
  if (!text.ok()) return std::nullopt;
  const Result<json::Value> value = json::parse(*text);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  json::FieldReader reader(value->get_object());
  DaemonAddress address;
  address.url = reader.required_string("url");
  address.socket = reader.optional_string("socket").value_or("");
  address.host = reader.optional_string("host").value_or("");
  const bool prefers_socket = reader.optional_bool("prefers_socket").value_or(false);
  address.local_url =
      prefers_socket && !address.socket.empty() ? http::unix_url(address.socket) : address.url;
  address.process.pid =
      static_cast<int>(reader.required_integer("pid", 1, std::numeric_limits<int>::max()));
  address.process.start_ticks =
      reader.required_integer("start_ticks", 0, std::numeric_limits<std::int64_t>::max());
  address.process.boot_id = reader.required_string("boot_id");
  reader.ignore_others();
  if (!reader.finish().empty() || !base::is_running(address.process)) return std::nullopt;
  return address;
}

std::vector<std::string> urls_for_others(const DaemonAddress& address) {
  const Result<http::Url> url = http::parse_url(address.url);
  if (!url.ok() || !http::is_any_address(address.host)) return {};
  constexpr std::string_view kAddress = "IP:";
  std::vector<std::string> urls;
  for (const std::string& name : names_of_server(address.host, {})) {
    const std::string host = name.substr(std::min(name.size(), kAddress.size()));
    // A name is another machine's to find; 0.0.0.0 hears nothing of version 6.
    const bool is_heard = address.host == "::" || host.find(':') == std::string::npos;
    if (!name.starts_with(kAddress) || http::is_loopback(host) || !is_heard) continue;
    urls.push_back(server_url(host, url->port, address.url.starts_with("https:")));
  }
  return urls;
}

}  // namespace llorch::api
