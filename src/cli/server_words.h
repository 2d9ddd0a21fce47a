// What a command is told about the server that it asks: flags, and behind them the environment.
// Private to cli/.
#pragma once

#include <string>

#include "base/home.h"
#include "base/result.h"

namespace llorch::cli {

// As the flags gave them; empty: not given.
struct ServerWords {
  std::string& url;
  std::string& ca_file;
  std::string& token;
};

// Takes from the environment what no flag gave: `url_variable`, LLORCH_CA_FILE, LLORCH_TOKEN. An
// address that is none, a file that cannot be read and a token that could not be sent are told by
// the name of what said so.
Status complete_server_words(const base::Environment& environment, const char* url_variable,
                             const ServerWords& words);

// The variable's value; empty where there is none.
std::string text_of(const base::Environment& environment, const char* name);

}  // namespace llorch::cli
