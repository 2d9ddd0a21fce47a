// Tests only: the cpu backend with one op computed wrongly, so that a model really goes through the
// mistake. Its memory is the host's, which hooks may therefore read and write. Composite ops are
// their parts here, so that a hook on a part is reached.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/backend.h"

namespace llorch::model {

class BrokenBackend final : public compute::Backend {
 public:
  explicit BrokenBackend(std::unique_ptr<compute::Backend> sound) : sound_(std::move(sound)) {}

  // Each is handed the arguments before the op runs and may change them; `after_…` what it wrote.
  std::function<void(compute::LinearTarget&)> on_linear;
  std::function<void(compute::AttentionArgs&)> on_attention;
  std::function<void(compute::GatherRowsArgs&)> on_gather_rows;
  std::function<void(compute::SoftmaxArgs&)> on_softmax;
  std::function<void(compute::WriteKvArgs&)> on_write_kv;
  std::function<void(const compute::WriteKvArgs&)> after_write_kv;
  std::function<void(const compute::LayerNormArgs&)> after_layer_norm;
  // Hear of what happens.
  std::function<void(const compute::StepShape&)> on_begin_step;
  std::function<void()> on_end_step;
  std::function<void(const compute::RopeAnglesArgs&)> on_rope_angles;
  std::function<void()> on_upload;
  std::function<void()> on_download;
  std::int32_t wanted_step_rows = 0;  // 0: as the sound one
  int refused_steps = 0;              // steps that it has no room to keep: they are begun again
  bool is_behind = false;             // results reach the host as late as a device's may

  std::string name() const override { return "broken " + sound_->name(); }
  std::string device_class() const override { return "broken-" + sound_->device_class(); }
  std::int64_t free_bytes() const override { return sound_->free_bytes(); }
  Result<compute::Buffer> allocate(std::int64_t bytes) override { return sound_->allocate(bytes); }
  void upload(std::span<const std::byte> host, void* device) override {
    if (on_upload) on_upload();
    sound_->upload(host, device);
  }
  void download(const void* device, std::span<std::byte> host) override {
    if (on_download) on_download();
    sound_->download(device, host);
  }
  void synchronize() override { sound_->synchronize(); }
  bool runs_behind() const override { return is_behind; }
  // Copied in the order of ops, seen by the host after wait().
  void download_later(const void* device, std::span<std::byte> host) override {
    if (!is_behind) return download(device, host);
    Copy& copy = unmarked_.emplace_back(Copy{std::vector<std::byte>(host.size()), host});
    sound_->download(device, copy.bytes);
  }
  void fill_in_ids(const tensor::TensorView& ids, const tensor::TensorView& found) override {
    sound_->fill_in_ids(ids, found);
  }
  void mark(int place) override {
    for (Copy& copy : std::exchange(unmarked_, {}))
      marked_.at(static_cast<std::size_t>(place)).push_back(std::move(copy));
  }
  void wait(int place) override {
    for (const Copy& copy : std::exchange(marked_.at(static_cast<std::size_t>(place)), {}))
      std::ranges::copy(copy.bytes, copy.host.begin());
  }
  compute::Buffer pin_host(std::span<std::byte> memory) override {
    return sound_->pin_host(memory);
  }
  Result<compute::Weight> load_weight(const compute::WeightSource& source) override {
    return sound_->load_weight(source);
  }
  compute::InputForm input_form(tensor::DType weight) const override {
    return sound_->input_form(weight);
  }
  compute::WeightForm weight_form(tensor::DType weight) const override {
    return sound_->weight_form(weight);
  }
  compute::AttentionForm attention_form(tensor::DType cache) const override {
    return sound_->attention_form(cache);
  }
  std::int32_t step_rows() const override {
    return wanted_step_rows > 0 ? wanted_step_rows : sound_->step_rows();
  }
  Status reserve(const compute::StepLimits& limits) override { return sound_->reserve(limits); }

  bool begin_step(const compute::StepShape& shape) override {
    if (on_begin_step) on_begin_step(shape);
    return sound_->begin_step(shape);
  }
  bool end_step() override {
    if (on_end_step) on_end_step();
    return sound_->end_step() && --refused_steps < 0;
  }
  std::int64_t thread_meetings() const override { return sound_->thread_meetings(); }

  void embed(const compute::EmbedArgs& args) override { sound_->embed(args); }
  void layer_norm(const compute::LayerNormArgs& args) override {
    sound_->layer_norm(args);
    if (after_layer_norm) after_layer_norm(args);
  }
  void rms_norm(const compute::RmsNormArgs& args) override { sound_->rms_norm(args); }
  void linear(const compute::LinearArgs& args) override {
    std::vector<compute::LinearTarget> targets(args.targets.begin(), args.targets.end());
    for (compute::LinearTarget& target : targets) {
      if (on_linear) on_linear(target);
    }
    sound_->linear({args.x, targets});
  }
  void activation(const compute::ActivationArgs& args) override { sound_->activation(args); }
  void rope_angles(const compute::RopeAnglesArgs& args) override {
    if (on_rope_angles) on_rope_angles(args);
    sound_->rope_angles(args);
  }
  void rope(const compute::RopeArgs& args) override { sound_->rope(args); }
  void write_kv(const compute::WriteKvArgs& args) override {
    compute::WriteKvArgs changed = args;
    if (on_write_kv) on_write_kv(changed);
    sound_->write_kv(changed);
    if (after_write_kv) after_write_kv(args);
  }
  void attention(const compute::AttentionArgs& args) override {
    run_changed(args, on_attention, &compute::Backend::attention);
  }
  void gather_rows(const compute::GatherRowsArgs& args) override {
    run_changed(args, on_gather_rows, &compute::Backend::gather_rows);
  }
  void softcap(const compute::SoftcapArgs& args) override { sound_->softcap(args); }
  void softmax(const compute::SoftmaxArgs& args) override {
    run_changed(args, on_softmax, &compute::Backend::softmax);
  }
  void argmax(const compute::ArgmaxArgs& args) override { sound_->argmax(args); }
  bool can_draw() const override { return sound_->can_draw(); }
  void draw(const compute::DrawArgs& args) override { sound_->draw(args); }
  bool can_choose() const override { return sound_->can_choose(); }
  void choose(const compute::ChooseArgs& args) override { sound_->choose(args); }
  bool can_edit() const override { return sound_->can_edit(); }
  void edit_logits(const compute::EditLogitsArgs& args) override { sound_->edit_logits(args); }

 private:
  template <class Args>
  void run_changed(Args args, const std::function<void(Args&)>& change,
                   void (compute::Backend::*op)(const Args&)) {
    if (change) change(args);
    (sound_.get()->*op)(args);
  }

  struct Copy {
    std::vector<std::byte> bytes;
    std::span<std::byte> host;
  };
  std::unique_ptr<compute::Backend> sound_;
  std::vector<Copy> unmarked_;
  std::array<std::vector<Copy>, kMarks> marked_;
};

}  // namespace llorch::model
