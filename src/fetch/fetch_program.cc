// One download as a process of its own, for tests that kill it:
//   llorch-fetch URL TARGET SIZE SHA256 RANGE_BYTES [FILE_SIZE_LIMIT]
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "fetch/transfer.h"

int main(int argc, char** argv) {
  using namespace llorch;
  if (argc < 6) return 2;
  if (argc > 6) {
    const rlim_t bytes = std::stoul(argv[6]);
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead, as on a full disk
  }
  fetch::RemoteFile file;
  file.path = "model.gguf";
  file.url = argv[1];
  file.size = std::stol(argv[3]);
  file.sha256 = argv[4];
  fetch::TransferOptions options;
  options.range_bytes = std::stol(argv[5]);
  options.retry.first_pause = std::chrono::milliseconds(5);
  const Result<fetch::FileChunks> result = fetch::transfer_file(file, argv[2], options, {}, {});
  if (result.ok()) return 0;
  fmt::print(stderr, "{}\n", result.error().message);
  return 1;
}
