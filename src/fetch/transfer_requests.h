// How a file is asked for. Private to fetch/.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "fetch/http_fetch.h"
#include "fetch/transfer.h"

namespace llorch::fetch {

inline FetchOptions fetch_options(const TransferOptions& options) {
  return {options.connect_timeout, options.stall_timeout, options.min_bytes_per_second,
          options.ca_file};
}

inline FetchRequest request_for(const RemoteFile& file, std::string url,
                                std::optional<ByteRange> range = std::nullopt) {
  FetchRequest request;
  request.url = std::move(url);
  request.headers = file.headers;
  request.headers_for_url = file.url;
  request.range = range;
  return request;
}

}  // namespace llorch::fetch
