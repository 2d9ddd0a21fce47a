// GET /v2/state: everything about this pool at once, now or when something changes. Private to
// pool/.
#pragma once

#include "contract/pool_state.h"
#include "http/stream.h"
#include "http/task.h"
#include "pool/service.h"

namespace llorch::pool {

// With `since` and `wait_ms`: as soon as the revision is another one, at the latest after so long.
http::Task<Status> show_state(ServicePtr service, const http::Request& request,
                              http::Responder& responder);

// The devices of a host, without what its workers were promised. Pure.
std::vector<contract::PoolDevice> list_devices(const contract::HostInfo& host,
                                               const std::vector<contract::PoolWorker>& workers);

}  // namespace llorch::pool
