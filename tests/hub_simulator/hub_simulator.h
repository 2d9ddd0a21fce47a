// A hub of models, an npm registry and a plain file server in this process, with the real paths and
// headers, that can do everything a real one does wrong. Counts what it was asked and sent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "hub_simulator/sim_socket.h"

namespace llorch::test {

using SimHeaders = std::vector<std::pair<std::string, std::string>>;

// The same bytes for the same seed, not compressible.
std::string random_bytes(std::size_t size, std::uint64_t seed);

// A file by its path ("/a/model.gguf").
struct SimFile {
  std::string content{};
  std::string etag{};         // with its quotes; empty: none
  bool ranges = true;         // false: every answer is 200 and whole
  bool length = true;         // false: no Content-Length, the end of the connection is the end
  bool total = true;          // false: Content-Range without the size of the whole
  std::string redirect_to{};  // answers 302 to there instead
  SimHeaders headers{};       // beside the usual ones
};

// Something that goes wrong. Requests whose target contains `path` are counted; the first `skip`
// are let through, the next `times` suffer.
struct SimFault {
  std::string path{};
  int skip = 0;
  int times = 1;
  std::int64_t only_offset = -1;  // counts requests only whose range begins there; -1: all
  int status = 0;                 // this instead of the answer, with `headers`
  SimHeaders headers{};
  std::int64_t cut_after = -1;        // bytes of the body, then the connection is reset
  bool stall_head = false;            // silence instead of an answer
  std::int64_t stall_after = -1;      // bytes of the body, then silence
  std::int64_t corrupt_at = -1;       // of the file: that byte is sent wrong
  std::int64_t bytes_per_second = 0;  // no faster than this; 0: as fast as it goes
  std::string etag{};                 // this one instead of the file's
  std::int64_t extra_bytes = 0;       // behind the body that was promised
  std::int64_t claimed_size = -1;     // of the whole file, in the head
};

struct SimRequest {
  std::string origin;  // of the listener: "http://127.0.0.1:PORT"
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  int status = 0;
  std::int64_t body_bytes = 0;  // that were sent
};

// A repository of the hub.
struct SimRepo {
  struct File {
    std::string path;
    std::string content;
    bool lfs = false;  // big files: sha256 in the tree, redirected to the other host
  };
  std::string name;  // "org/repo"
  std::string commit;
  std::string license{};
  bool gated = false;       // files need the token
  bool is_private = false;  // everything needs the token
  std::string token{};
  std::size_t tree_page = 1000;
  std::vector<File> files{};
};

class HubSimulator {
 public:
  HubSimulator();
  HubSimulator(const HubSimulator&) = delete;
  HubSimulator& operator=(const HubSimulator&) = delete;

  const std::string& url() const { return main_url_; }     // the hub's own origin
  const std::string& cdn_url() const { return cdn_url_; }  // another one, where big files are

  void put_file(std::string path, SimFile file);  // on both; replaces
  void put_repo(SimRepo repo);                    // by its name; replaces
  // `integrity` empty: the right one.
  void put_package(const std::string& name, const std::string& version, std::string tarball,
                   std::string integrity = {});
  void add_fault(SimFault fault);
  void clear_faults();
  // The signed addresses of big files that were given out so far are refused (403) from now on.
  void expire_links();

  std::vector<SimRequest> requests(std::string_view path_part = {}) const;
  std::int64_t bytes_sent(std::string_view path_part) const;
  void forget_requests();
  // The most answers with a body that were under way at once.
  int most_at_once() const;

 private:
  struct Answer;
  void serve(SimConnection& connection, const std::string& origin);
  bool answer(SimConnection& connection, SimRequest& request);
  std::optional<SimFault> take_fault(const SimRequest& request);
  Answer route(const SimRequest& request) const;
  Answer route_repo(const SimRepo& repo, const SimRequest& request, std::string_view rest) const
      LLORCH_REQUIRES(mutex_);
  Answer repo_info(const SimRepo& repo) const;
  Answer repo_tree(const SimRepo& repo, const SimRequest& request) const;
  Answer repo_file(const SimRepo& repo, const std::string& path) const LLORCH_REQUIRES(mutex_);
  bool send_file(SimConnection& connection, SimRequest& request, const Answer& answer,
                 const SimFault& fault);
  bool send_body(SimConnection& connection, SimRequest& request, std::string_view body,
                 const SimFault& fault);

  struct FaultState {
    SimFault fault;
    int seen = 0;
  };

  mutable base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const SimFile>> files_ LLORCH_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const SimRepo>> repos_ LLORCH_GUARDED_BY(mutex_);
  std::map<std::string, std::string> packages_ LLORCH_GUARDED_BY(mutex_);  // metadata by name
  std::vector<FaultState> faults_ LLORCH_GUARDED_BY(mutex_);
  int link_generation_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::map<std::size_t, SimRequest> requests_ LLORCH_GUARDED_BY(mutex_);  // in the order they came
  std::size_t next_request_ LLORCH_GUARDED_BY(mutex_) = 0;
  int at_once_ LLORCH_GUARDED_BY(mutex_) = 0;
  int most_at_once_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::string main_url_;  // written before anybody is served
  std::string cdn_url_;
  // Last: their threads use everything else.
  std::unique_ptr<SimListener> main_;
  std::unique_ptr<SimListener> cdn_;
};
}  // namespace llorch::test
