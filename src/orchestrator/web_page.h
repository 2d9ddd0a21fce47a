// The orchestrator's page for people: the files of web/, which are part of the program. Private to
// orchestrator/.
#pragma once

#include <span>
#include <string_view>

#include "http/router.h"

namespace llorch::orchestrator {

struct WebFile {
  std::string_view path;  // as a browser asks for it: "/", "/web/house.js"
  std::string_view content_type;
  std::string_view content;
};

std::span<const WebFile> web_files();

// Answers for them, to everybody: the page itself tells nothing, what it shows it asks for with its
// reader's key.
void add_web_files(http::Router& router);

}  // namespace llorch::orchestrator
