// Backend: one device's memory and the ops a transformer is made of. The seam between model and
// hardware.
//
// Ops are enqueued in call order and may run later; download() and synchronize() wait for them.
// Everything an op reads or writes is device memory of this backend, index tensors included, so
// that a device never has to come back to the host between the first op of a step and the logits.
// One thread calls a backend at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "compute/choose.h"
#include "compute/edit_logits.h"
#include "compute/input_form.h"
#include "compute/ops.h"
#include "compute/weight.h"

namespace llorch::compute {

// The largest step that ops will be asked for; reserve() turns it into scratch memory once.
struct StepLimits {
  std::int64_t rows = 0;        // rows of one call
  std::int64_t inputs = 0;      // widest row that a linear op multiplies, or that embed looks up
  std::int64_t context = 0;     // longest sequence, in tokens
  std::int64_t head_dim = 256;  // widest head that attention will see
};

// What one step is about to compute. Which kernels run for a row never follows from these numbers:
// they are for launching, not for arithmetic.
struct StepShape {
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t argmax_rows = 0;  // of logit_rows
  bool draws = false;            // some of those are drawn
  bool chooses = false;          // some of those by more than a temperature
  std::int64_t hidden_rows = 0;
  std::int64_t given_rows = 0;  // rows that bring their own embedding
  std::int64_t sequences = 0;
  std::int64_t table_width = 0;       // of each sequence's row of block tables
  std::span<const SequenceRun> runs;  // as in AttentionArgs
  // Who asks: two steps of one owner that agree in the numbers above, with rows that are all of
  // different sequences, have the same ops with the same tensors; only what the tensors hold
  // differs. Null: nothing is promised.
  const void* owner = nullptr;
  bool observed = false;  // results are read between the ops: nothing may be put off
  const std::atomic<bool>* abort = nullptr;  // once true, the step is given up; may be null
};

// What a device that has memory of its own says of itself.
struct DeviceFacts {
  std::int32_t sm = 0;            // compute capability: 90 is 9.0
  std::string runtime_version;    // "13.0"
  std::int64_t memory_bytes = 0;  // in all, whoever uses it
  std::string bus_id;             // its place: "0000:1b:00.0", as the driver's own tools name it
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name()
      const = 0;  // "reference", "cpu (AVX2, 8 threads)", "cuda:0 (NVIDIA …)"

  // Two backends of one class and one build give the same bits for the same ops: "cpu-avx512",
  // "cuda-sm90", "reference". Asked for once the weights are loaded: it may follow from their
  // types.
  virtual std::string device_class() const = 0;

  // Nothing where the host is the device.
  virtual std::optional<DeviceFacts> facts() const { return std::nullopt; }
  // Whether the buffer lies in the memory of this device, and nowhere else. Any thread.
  virtual bool is_resident(const Buffer&) const { return true; }
  // What reserve() took. 0 where the host is the device.
  virtual std::int64_t workspace_bytes() const { return 0; }

  // Memory that buffers can still be made of.
  virtual std::int64_t free_bytes() const = 0;
  // Memory. Fresh buffers are zeroed, and theirs from then on: nothing is taken on first use. A
  // failure names the bytes asked for.
  virtual Result<Buffer> allocate(std::int64_t bytes) = 0;
  virtual void upload(std::span<const std::byte> host, void* device) = 0;
  virtual void download(const void* device, std::span<std::byte> host) = 0;
  virtual void synchronize() = 0;

  // Whether the host goes on while ops run. Such a device can be given a step before the host has
  // seen what the one before found.
  virtual bool runs_behind() const { return false; }
  // As download(), in the order of the ops: `host` is filled once wait() has returned for a mark
  // that was set afterwards. As fast as that may be where `host` is pinned.
  virtual void download_later(const void* device, std::span<std::byte> host) {
    download(device, host);
  }
  // Marks what has been enqueued so far, in one of kMarks places; wait() returns when it is done.
  static constexpr int kMarks = 2;
  virtual void mark(int /*place*/) {}
  virtual void wait(int /*place*/) {}
  // An op of such steps: an id below 0 is a place among those that an earlier op found, -1 - id,
  // and becomes what is there, or 0 where that is below 0, too. `ids` (rows) I32, `found` (n) I32.
  virtual void fill_in_ids(const TensorView& ids, const TensorView& found);
  // Makes downloads into this memory as fast as the device can send. The result is let go before
  // the memory is; nothing to hold where it makes no difference.
  virtual Buffer pin_host(std::span<std::byte>) { return {}; }

  // Takes a matrix in: keeps the file's bytes, copies, transposes or repacks as this backend likes
  // best. Fails with Unsupported naming dtype and tensor where the backend has no kernel for it.
  virtual Result<Weight> load_weight(const WeightSource& source) = 0;
  // The form in which products with weights of this type take their input. Held to 1e-6 of it by
  // the conformance tests.
  virtual InputForm input_form(tensor::DType weight) const = 0;
  // The form of the weights themselves in those products.
  virtual WeightForm weight_form(tensor::DType) const { return WeightForm::Exact; }
  // The precision in which attention over a cache of this type multiplies. Held to it likewise.
  virtual AttentionForm attention_form(tensor::DType cache) const = 0;
  // How many rows of a step this device is well used by: fewer leave it idle, more take memory and
  // make everybody wait. The same for every model.
  virtual std::int32_t step_rows() const = 0;
  virtual Status reserve(const StepLimits& limits) = 0;

  // Around the ops of a step, so that a device can capture, replay, pin and overlap them: all
  // uploads come before, all downloads after, unless the step is observed. True where the device
  // knows the step from before: its ops are not called again, end_step() has them run. False from
  // end_step(): a device that put the ops off had no room to keep them, and none of them ran. The
  // step is to be begun again.
  virtual bool begin_step(const StepShape&) { return false; }
  virtual bool end_step() { return true; }
  // Asked before each layer: whether the step is given up. A device that runs behind its host waits
  // here until it is near enough for the answer to save something.
  virtual bool aborted(const StepShape& shape);
  // How often so far threads were sent off and waited for: what small steps pay besides arithmetic.
  // 0 where there are no threads to count.
  virtual std::int64_t thread_meetings() const { return 0; }

  virtual void embed(const EmbedArgs& args) = 0;
  virtual void layer_norm(const LayerNormArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void activation(const ActivationArgs& args) = 0;
  virtual void rope_angles(const RopeAnglesArgs& args) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  virtual void write_kv(const WriteKvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void softcap(const SoftcapArgs& args) = 0;
  virtual void softmax(const SoftmaxArgs& args) = 0;
  virtual void argmax(const ArgmaxArgs& args) = 0;
  // Whether tokens are drawn here; where not, logits are fetched and whoever wants to draws.
  virtual bool can_draw() const { return false; }
  virtual void draw(const DrawArgs& args);
  // The same for top-k, top-p and min-p.
  virtual bool can_choose() const { return false; }
  virtual void choose(const ChooseArgs& args);
  // And whether their logits can be changed here before.
  virtual bool can_edit() const { return false; }
  virtual void edit_logits(const EditLogitsArgs& args);

  // layer_norm or rms_norm.
  void norm(const TensorView& x, const RowNorm& norm, const TensorView& out);

  // Several of the ops above in one. The bodies here call them one by one; a backend that can do
  // better overrides, and gives the same bits.
  virtual void begin_rows(const BeginRowsArgs& args);
  virtual void norm_linear(const NormLinearArgs& args);
  virtual void mlp_in(const MlpInArgs& args);
  virtual void place_heads(const PlaceHeadsArgs& args);
  virtual void logits(const LogitsArgs& args);
  virtual void project_heads(const ProjectHeadsArgs& args);
};

}  // namespace llorch::compute
