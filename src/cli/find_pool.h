// Finding the pool manager that a command means, and starting one where there is none. Private to
// cli/.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/home.h"
#include "base/result.h"
#include "pool_client/pool_client.h"

namespace llorch::cli {

using pool_client::PoolClient;

// Which manager a command means.
struct PoolTarget {
  base::Environment environment;
  base::Home home;
  std::string url;        // named by the user; empty: the one of this home
  std::string token;      // may be empty
  bool stays = false;     // one that is started here does not leave when nobody uses it
  std::string ca_file{};  // for https, and no other authority; empty: the system's and this home's
};

// The manager that answers, when one does: the one named, else the one that this home's pool.json
// names. NotFound when there is none, also when another home's answers on the usual port; of one
// that is named and does not answer, Unavailable says so.
Result<PoolClient> find_pool(const PoolTarget& target);

// The same, but where there is none on this machine it is started: `pool-managerd` beside us, in a
// session of its own, on the usual port or a free one, its log in Home::logs()/pool.log; it leaves
// when nothing has used it for a while. Two that come at once start one.
Result<PoolClient> find_or_start_pool(const PoolTarget& target);

// Ends this home's manager where it runs another version of our programs (from a folder beside
// ours, or from ours before they were replaced there), as a crash would: its workers stay with
// their keepers, and the manager that comes next adopts them. Where a service manager started it,
// that starts the next, and this waits until it is one of ours; else find_or_start_pool does.
// False: there is nothing to replace; a manager from anywhere else is left alone. Unavailable: it
// does not end, or does not come again as ours.
Result<bool> end_other_version(const PoolTarget& target);

// Asks the manager to stop every worker and then itself, and waits until it has. `on_look` is told
// again and again how many workers there still are; false: no need to wait (Cancelled). Unavailable
// when it still runs after its own limits.
Status stop_pool(const PoolClient& client, const base::Home& home,
                 const std::function<bool(std::size_t workers)>& on_look);

// Whether the address is one of loopback.
bool is_on_this_host(const std::string& url);

}  // namespace llorch::cli
