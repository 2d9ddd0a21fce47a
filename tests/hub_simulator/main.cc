// The simulator by hand: serves one file as hf:sim/model and at /FILE, until its input ends.
//   llorch-hub-simulator FILE [BYTES_PER_SECOND of each connection]
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "hub_simulator/hub_simulator.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: llorch-hub-simulator FILE [BYTES_PER_SECOND]\n");
    return 2;
  }
  const std::filesystem::path path = argv[1];
  std::ifstream in(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(in), {}};
  llorch::test::HubSimulator hub;
  hub.put_file("/" + path.filename().string(), {.content = content, .etag = "\"sim\""});
  hub.put_repo({.name = "sim/model",
                .commit = std::string(40, 'a'),
                .license = "mit",
                .files = {{path.filename().string(), std::move(content), true}}});
  if (argc > 2)
    hub.add_fault({.path = "", .times = 1'000'000'000, .bytes_per_second = std::stol(argv[2])});
  fmt::print("HF_ENDPOINT={}\n", hub.url());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  fmt::print("{} requests, at most {} at once\n", hub.requests().size(), hub.most_at_once());
  return 0;
}
