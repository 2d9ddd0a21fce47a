// The one look that `llorch doctor` takes at the machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>

#include "api/daemon_address.h"
#include "base/confinement.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/settings.h"
#include "cli/doctor.h"
#include "cli/fleet_client.h"
#include "contract/backend_kind.h"
#include "contract/default_ports.h"
#include "http/url.h"
#include "pool/devices.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrograms[] = {"llorch-pool", "llorch-cpud", "pool-managerd",
                                          "orchestratord"};
constexpr int kBusDevicesMax = 4096;

std::string text_of(const base::Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

// A card that shows pictures or computes, of NVIDIA, as the bus names it.
bool find_nvidia_card() {
  std::error_code ignored;
  int seen = 0;
  for (const fs::directory_entry& device :
       fs::directory_iterator("/sys/bus/pci/devices", ignored)) {
    if (++seen > kBusDevicesMax) break;
    std::string vendor;
    std::string kind;
    std::ifstream(device.path() / "vendor") >> vendor;
    std::ifstream(device.path() / "class") >> kind;
    if (vendor == "0x10de" && kind.starts_with("0x03")) return true;
  }
  return false;
}

PortFacts look_at_port(std::uint16_t port, std::string_view program,
                       const std::optional<api::DaemonAddress>& daemon) {
  PortFacts facts{port, program, PortFacts::State::Unknown};
  if (daemon) {
    const Result<http::Url> url = http::parse_url(daemon->url);
    if (url.ok() && url->port == port) {
      facts.state = PortFacts::State::Ours;
      return facts;
    }
  }
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return facts;
  const int on = 1;  // as our servers do: what an ended one left behind is no obstacle
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(socket, 1) == 0;
  if (is_free)
    facts.state = PortFacts::State::Free;
  else if (errno == EADDRINUSE)
    facts.state = PortFacts::State::Taken;
  ::close(socket);
  return facts;
}

PlaceFacts look_at_place(const fs::path& path) {
  PlaceFacts facts{.path = path.string()};
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    facts.exists = true;
    facts.is_mine = status.st_uid == ::geteuid();
    facts.mode = status.st_mode & 07777U;
    facts.can_write = ::access(path.c_str(), R_OK | W_OK | X_OK) == 0;
    return facts;
  }
  fs::path above = path.parent_path();
  std::error_code ignored;
  while (!fs::exists(above, ignored) && above.has_relative_path()) above = above.parent_path();
  facts.can_write = ::access(above.c_str(), W_OK | X_OK) == 0;
  return facts;
}

// Whether somebody listens on the socket that the variable names.
bool has_agent(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  const bool answers =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(socket);
  return answers;
}

bool has_key_file(const std::string& user_home) {
  if (user_home.empty()) return false;
  std::error_code ignored;
  for (const char* name : {"id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"})
    if (fs::exists(fs::path(user_home) / ".ssh" / name, ignored)) return true;
  return false;
}

void look_at_descriptors(MachineFacts& facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  facts.soft_descriptors = limit.rlim_cur;
  facts.hard_descriptors = limit.rlim_max;
}

void look_at_clock(MachineFacts& facts) {
  facts.epoch_seconds = std::time(nullptr);
  timex clock{};
  if (::adjtimex(&clock) >= 0) facts.is_clock_synchronised = (clock.status & STA_UNSYNC) == 0;
}

void look_at_confinement(MachineFacts& facts, const std::string& library_path) {
  const auto made =
      base::Confinement::prepare(base::rules_to_run(base::own_folder() / "llorch", library_path));
  if (!made.ok()) {
    facts.confinement = made.error().message;
    return;
  }
  facts.confines_files = (*made)->limits_files();
  facts.confines_ports = (*made)->limits_ports();
  facts.confines_calls = (*made)->limits_calls();
  facts.confinement = (*made)->describe();
}

}  // namespace

MachineFacts look_at_machine(const base::Environment& environment, const base::Home& home) {
  MachineFacts facts;
  facts.host = pool::Devices().read(home.models());
  facts.cgroup = base::read_cgroup_limits();
  facts.machine_memory_bytes =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  look_at_descriptors(facts);
  facts.has_nvidia_card = find_nvidia_card();
  const fs::path folder = base::own_folder();
  facts.program_folder = folder.string();
  std::error_code ignored;
  for (const std::string_view program : kPrograms)
    if (!fs::exists(folder / program, ignored)) facts.lacking.emplace_back(program);
  facts.has_cuda_worker =
      fs::exists(folder / contract::find_backend_kind(contract::kCuda)->program, ignored);
  facts.ports = {
      look_at_port(contract::kOrchestratorPort, "orchestratord", read_orchestrator_address(home)),
      look_at_port(contract::kPoolPort, "pool-managerd", pool::read_pool_address(home))};
  look_at_clock(facts);
  facts.ssh_program = base::find_program("ssh", text_of(environment, "PATH")).string();
  facts.has_ssh_agent = has_agent(text_of(environment, "SSH_AUTH_SOCK"));
  facts.has_ssh_key_file = has_key_file(text_of(environment, "HOME"));
  facts.places.push_back(look_at_place(home.data));
  if (home.state != home.data) facts.places.push_back(look_at_place(home.state));
  facts.config_file = home.config_file.string();
  facts.has_config = fs::exists(home.config_file, ignored);
  if (const Status config = base::check_config(environment); !config.ok())
    facts.config_error = config.error().message;
  look_at_confinement(facts, text_of(environment, "LD_LIBRARY_PATH"));
  return facts;
}

}  // namespace llorch::cli
