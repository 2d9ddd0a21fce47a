// /v2/workers/{id}/api/…: any request to a worker through the pool's one port, and its answer as it
// comes. Private to pool/.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/pool_info.h"
#include "http/client.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "pool/service.h"

namespace llorch::pool {

// What is sent to the worker: method, body and everything of the head that is meant for it. What is
// between the client and us stays here (Host, Connection and what it names, Authorization, Origin,
// cookies, X-Llorch-Boot). Pure. `uri`: the worker's own.
http::ClientRequest relayed_request(const http::Request& request, const std::string& uri);
// The fields of the worker's answer that the client is to see. Pure.
http::Headers relayed_headers(const http::Headers& answer);
// Why requests cannot go to this worker now; ok: they can.
Status check_reachable(const contract::PoolWorker& worker);

http::Task<Status> relay_to_worker(ServicePtr service, const http::Request& request,
                                   http::Responder& responder);

}  // namespace llorch::pool
