// Tells the service manager that started us (systemd, Type=notify) how we are.
#pragma once

#include <string_view>

namespace llorch::api {

// Sends `message` ("READY=1", "STOPPING=1\nSTATUS=…") to the socket of that name: a path, or an
// abstract name behind '@'. `socket` is the value of NOTIFY_SOCKET, null when nobody listens. False
// when it could not be sent.
bool send_service_notice(const char* socket, std::string_view message);

}  // namespace llorch::api
