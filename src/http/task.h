// The coroutine type of everything that waits for the network.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace llorch::http {

// A coroutine that runs on the executor of whoever awaits it; nothing happens before it is awaited.
template <class T>
using Task = boost::asio::awaitable<T>;

}  // namespace llorch::http
