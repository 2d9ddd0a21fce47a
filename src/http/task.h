// The coroutine type of everything that waits for the network.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace llorch::http {

// A coroutine that runs on the executor of whoever awaits it; nothing happens before it is awaited.
// gcc 12 destroys an aggregate twice when it is built with braces inside a co_await expression
// (co_await f(Aggregate{...})): give it a name first, or give the type a constructor.
template <class T>
using Task = boost::asio::awaitable<T>;

}  // namespace llorch::http
