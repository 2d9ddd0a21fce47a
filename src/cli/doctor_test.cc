#include "cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/utf8.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using ::testing::HasSubstr, ::testing::Not;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// A machine that has everything.
MachineFacts good_machine() {
  MachineFacts facts;
  facts.host.cpu = "Processor 9000";
  facts.host.isa = "AVX-512";
  facts.host.cores = 16;
  facts.host.threads = 16;
  facts.host.memory_total_bytes = 64 * kGiB;
  facts.host.memory_free_bytes = 60 * kGiB;
  facts.host.disk_free_bytes = 500 * kGiB;
  contract::GpuInfo gpu;
  gpu.name = "Card 1";
  gpu.vram_total_bytes = 24 * kGiB;
  gpu.vram_free_bytes = 23 * kGiB;
  gpu.driver = "600.1";
  facts.host.gpus = {gpu};
  facts.machine_memory_bytes = 64 * kGiB;
  facts.soft_descriptors = 1024;
  facts.hard_descriptors = 1'048'576;
  facts.has_nvidia_card = true;
  facts.has_cuda_worker = true;
  facts.program_folder = "/usr/bin";
  facts.ports = {{8080, "orchestratord", PortFacts::State::Free},
                 {9200, "pool-managerd", PortFacts::State::Ours}};
  facts.epoch_seconds = 1'790'000'000;
  facts.is_clock_synchronised = true;
  facts.ssh_program = "/usr/bin/ssh";
  facts.has_ssh_agent = true;
  facts.places = {{"/home/a/.local/share/llorch", true, true, true, 0700}};
  facts.config_file = "/home/a/.config/llorch/config.toml";
  facts.confines_files = facts.confines_ports = facts.confines_calls = true;
  facts.confinement = "files and ports by landlock (ABI 7), system calls by seccomp";
  return facts;
}

Diagnosis find(const MachineFacts& facts, std::string_view subject) {
  for (Diagnosis& found : judge_machine(facts))
    if (found.subject == subject) return found;
  ADD_FAILURE() << "nothing is said about " << subject;
  return {};
}

// Whatever is not ok says what to do.
void expect_advice(const Diagnosis& found, Verdict verdict, std::string_view words) {
  EXPECT_EQ(verdict_name(found.verdict), verdict_name(verdict)) << found.subject << found.found;
  EXPECT_THAT(found.found + found.mend, HasSubstr(words));
  EXPECT_NE(found.mend, "") << found.subject;
}

TEST(Doctor, AMachineThatHasEverythingIsOk) {
  for (const Diagnosis& found : judge_machine(good_machine())) {
    EXPECT_EQ(found.verdict, Verdict::Ok) << found.subject << ": " << found.found;
    EXPECT_EQ(found.mend, "");
    EXPECT_NE(found.found, "");
  }
  EXPECT_THAT(doctor_text(judge_machine(good_machine()), 100, false),
              HasSubstr("\n0 faults, 0 notes\n"));
}

TEST(Doctor, SmallMachinesAreNotedAndTooSmallOnesAreFaults) {
  MachineFacts facts = good_machine();
  facts.host.memory_free_bytes = 2 * kGiB;
  facts.host.disk_free_bytes = 5 * kGiB;
  facts.hard_descriptors = 1024;
  expect_advice(find(facts, "memory"), Verdict::Note, "2.00 GiB free of 64.0 GiB");
  expect_advice(find(facts, "disk"), Verdict::Note, "models prune");
  expect_advice(find(facts, "descriptors"), Verdict::Note, "LimitNOFILE=");
  facts.host.memory_free_bytes = 100 << 20;
  facts.host.disk_free_bytes = 100 << 20;
  facts.hard_descriptors = 100;
  expect_advice(find(facts, "memory"), Verdict::Fault, "100 MiB");
  expect_advice(find(facts, "disk"), Verdict::Fault, "LLORCH_HOME");
  expect_advice(find(facts, "descriptors"), Verdict::Fault, "100");
}

TEST(Doctor, AProcessorWithoutOurKernelsIsNoted) {
  MachineFacts facts = good_machine();
  for (const char* isa : {"AVX2", "NEON"}) {
    facts.host.isa = isa;
    EXPECT_EQ(find(facts, "processor").verdict, Verdict::Ok) << isa;
  }
  facts.host.isa = "SSE4";
  expect_advice(find(facts, "processor"), Verdict::Note, "AVX2");
}

TEST(Doctor, OnlyLimitsBelowTheMachineAreNoted) {
  MachineFacts facts = good_machine();
  facts.cgroup.cpus = 16;
  facts.cgroup.memory_bytes = 64 * kGiB;
  EXPECT_EQ(find(facts, "limits").verdict, Verdict::Ok);
  facts.cgroup.cpus = 2.5;
  facts.cgroup.memory_bytes = 8 * kGiB;
  expect_advice(find(facts, "limits"), Verdict::Note, "2.5 of 16 processors and 8.00 GiB of 64.0");
}

TEST(Doctor, ACardThatNobodyDrivesIsAFaultAndNoCardIsNone) {
  MachineFacts facts = good_machine();
  facts.has_cuda_worker = false;
  expect_advice(find(facts, "gpu"), Verdict::Note, "worker-orcd");
  facts.host.gpus.clear();
  facts.host.gpu_note = "no NVIDIA driver: libnvidia-ml.so.1 is not there";
  expect_advice(find(facts, "gpu"), Verdict::Fault, "nvidia-smi");
  facts.has_nvidia_card = false;
  EXPECT_EQ(find(facts, "gpu").verdict, Verdict::Note);
}

TEST(Doctor, ADriverThatIsTooOldForTheWorkerIsAFault) {
  MachineFacts facts = good_machine();
  facts.host.gpus[0].driver = "575.64.05";
  expect_advice(find(facts, "gpu"), Verdict::Fault, "driver 575.64.05: older than 580");
  EXPECT_THAT(find(facts, "gpu").mend, HasSubstr("`apt install nvidia-driver-580`"));
  for (const char* driver : {"580.65.06", "1000", "", "unknown"}) {
    facts.host.gpus[0].driver = driver;
    EXPECT_EQ(find(facts, "gpu").verdict, Verdict::Ok) << driver;
  }
  // Nothing needs it where nothing computes there.
  facts.host.gpus[0].driver = "535.1";
  facts.has_cuda_worker = false;
  EXPECT_EQ(find(facts, "gpu").verdict, Verdict::Note);
}

TEST(Doctor, PortsClockAndProgramsAreJudged) {
  MachineFacts facts = good_machine();
  facts.ports[0].state = PortFacts::State::Taken;
  facts.ports[1].state = PortFacts::State::Unknown;
  expect_advice(find(facts, "port 8080"), Verdict::Note, "sport = :8080");
  expect_advice(find(facts, "port 9200"), Verdict::Fault, "lo up");
  facts.is_clock_synchronised = false;
  expect_advice(find(facts, "clock"), Verdict::Note, "set-ntp");
  facts.is_clock_synchronised.reset();
  EXPECT_EQ(find(facts, "clock").verdict, Verdict::Ok);
  facts.epoch_seconds = 86'400;
  expect_advice(find(facts, "clock"), Verdict::Fault, "before 2026");
  facts.lacking = {"llorch-cpud"};
  expect_advice(find(facts, "programs"), Verdict::Fault, "llorch-cpud not in /usr/bin");
}

TEST(Doctor, SshIsNeededForOtherHostsOnly) {
  MachineFacts facts = good_machine();
  facts.has_ssh_agent = false;
  expect_advice(find(facts, "ssh"), Verdict::Note, "ssh-keygen");
  facts.has_ssh_key_file = true;
  expect_advice(find(facts, "ssh"), Verdict::Note, "ssh-add");
  facts.ssh_program.clear();
  expect_advice(find(facts, "ssh"), Verdict::Note, "openssh-client");
}

TEST(Doctor, FilesThatOthersMayTouchAreTold) {
  MachineFacts facts = good_machine();
  facts.places[0].mode = 0755;
  expect_advice(find(facts, "home"), Verdict::Note, "`chmod 700 /home/a/.local/share/llorch`");
  facts.places[0].mode = 0770;
  expect_advice(find(facts, "home"), Verdict::Fault, "written by others (0770)");
  facts.places[0].mode = 0700;
  facts.places[0].can_write = false;
  expect_advice(find(facts, "home"), Verdict::Fault, "cannot be written to");
  facts.places[0].is_mine = false;
  expect_advice(find(facts, "home"), Verdict::Fault, "another user");
  facts.places[0] = {"/x", false, true, true, 0};
  EXPECT_THAT(find(facts, "home").found, HasSubstr("not there yet"));
  facts.config_error = "config.toml, line 3: surprise";
  expect_advice(find(facts, "config"), Verdict::Fault, "line 3: surprise");
  facts.confines_ports = false;
  expect_advice(find(facts, "confinement"), Verdict::Note, "6.7");
}

TEST(Doctor, TheTableIsAlignedAndNothingInItCommandsATerminal) {
  MachineFacts facts = good_machine();
  facts.host.cpu = "Evil \x1b[2J processor";
  facts.host.isa = "SSE4";
  const std::string text = doctor_text(judge_machine(facts), 60, false);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\n0 faults, 1 note\n"));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    EXPECT_LE(base::count_scalars(line), 60U) << line;
    if (line.empty() || line.front() == '0') continue;
    EXPECT_EQ(line.substr(18, 2), "  ") << line;  // "note   " and "confinement  "
    EXPECT_NE(line.at(20), ' ') << line;
  }
  EXPECT_THAT(doctor_text(judge_machine(facts), 60, true), HasSubstr("\x1b[33mnote"));
}

TEST(DoctorCommand, LooksAtThisMachine) {
  const test::TempDir home;
  const std::vector<std::string> environment = {"LLORCH_HOME=" + (home / "h").string(),
                                                "LLORCH_CONFIG="};
  const test::ProgramOutcome text = test::run_program(LLORCH, {"doctor"}, environment);
  EXPECT_THAT(text.out, HasSubstr("confinement"));
  EXPECT_THAT(text.out, Not(HasSubstr("\x1b")));
  const test::ProgramOutcome object = test::run_program(LLORCH, {"doctor", "--json"}, environment);
  const Result<json::Value> parsed = json::parse(object.out);
  ASSERT_TRUE(parsed.ok()) << object.out;
  const json::Object& answer = parsed->get_object();
  EXPECT_GE(answer.at("checks").get_array().size(), 14U);
  EXPECT_EQ(object.exit_code, answer.at("faults").get_int64() > 0 ? 1 : 0) << object.out;
  EXPECT_EQ(text.exit_code, object.exit_code);
  // It only looks.
  EXPECT_FALSE(std::filesystem::exists(home / "h"));
}

TEST(DoctorCommand, ABrokenConfigurationIsAFindingAndNotTheEnd) {
  const test::TempDir home;
  std::ofstream(home / "config.toml") << "[surprise]\n";
  std::filesystem::permissions(home.path(), std::filesystem::perms::owner_all |
                                                std::filesystem::perms::group_write |
                                                std::filesystem::perms::others_write);
  const test::ProgramOutcome outcome = test::run_program(
      LLORCH, {"doctor"}, {"LLORCH_HOME=" + home.path().string(), "LLORCH_CONFIG="});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("surprise"));
  EXPECT_THAT(outcome.out, HasSubstr("fault  home"));
  EXPECT_THAT(outcome.out, HasSubstr("chmod 700"));
}

}  // namespace
}  // namespace llorch::cli
