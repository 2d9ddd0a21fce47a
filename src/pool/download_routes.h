// The endpoints of downloads and verifications. Private to pool/.
#pragma once

#include "pool/bodies.h"
#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> start_download(const Service& service, const http::Request& request);
// By a reference alone, or with an id in the body.
Result<http::Response> start_named_download(const Service& service, const http::Request& request);
Result<http::Response> start_verify(const Service& service, const http::Request& request);
Result<http::Response> list_downloads(const Service& service, const http::Request& request);
Result<http::Response> show_download(const Service& service, const http::Request& request);
Result<http::Response> cancel_download(const Service& service, const http::Request& request);
http::Task<Status> stream_download(ServicePtr service, const http::Request& request,
                                   http::Responder& responder);

DownloadList all_downloads(const Service& service);

}  // namespace llorch::pool
