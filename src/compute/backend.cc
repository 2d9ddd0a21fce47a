// The composite ops as the ops they are made of.
#include "compute/backend.h"

#include "compute/check_args.h"

namespace llorch::compute {

bool Backend::aborted(const StepShape& shape) {
  return shape.abort != nullptr && shape.abort->load(std::memory_order_relaxed);
}

void Backend::fill_in_ids(const TensorView&, const TensorView&) {
  CHECK(false, "a backend that does not run behind its host was given ids to fill in");
}

void Backend::draw(const DrawArgs&) {
  CHECK(false, "a backend that cannot draw was asked to");
}

void Backend::choose(const ChooseArgs&) {
  CHECK(false, "a backend that cannot choose was asked to");
}

void Backend::edit_logits(const EditLogitsArgs&) {
  CHECK(false, "a backend that cannot edit logits was asked to");
}

void Backend::norm(const TensorView& x, const RowNorm& norm, const TensorView& out) {
  if (norm.kind == NormKind::LayerNorm) {
    layer_norm(
        {.x = x, .weight = norm.weight, .bias = norm.bias, .epsilon = norm.epsilon, .out = out});
  } else {
    rms_norm({.x = x, .weight = norm.weight, .epsilon = norm.epsilon, .out = out});
  }
}

void Backend::begin_rows(const BeginRowsArgs& args) {
  if (args.found) fill_in_ids(args.embed.ids, args.found);
  embed(args.embed);
  for (const RopeAnglesArgs& angles : args.angles) rope_angles(angles);
}

void Backend::norm_linear(const NormLinearArgs& args) {
  norm(args.x, args.norm, args.normed);
  linear({.x = args.normed, .targets = args.targets});
}

void Backend::mlp_in(const MlpInArgs& args) {
  check_args(args);
  norm_linear(args.product);
  const std::int64_t dim = args.gated ? args.out.dims[1] / 2 : args.out.dims[1];
  const TensorView inner = args.out.columns(0, dim);
  activation({.kind = args.kind,
              .x = inner,
              .gate_with = args.gated ? args.out.columns(dim, dim) : TensorView(),
              .out = inner});
}

void Backend::place_heads(const PlaceHeadsArgs& args) {
  const auto place = [&](const TensorView& heads, const TensorView& norm) {
    if (norm) rms_norm({.x = heads, .weight = norm, .epsilon = args.epsilon, .out = heads});
    if (args.angles) rope({.x = heads, .angles = args.angles, .style = args.style});
  };
  place(args.q, args.q_norm);
  place(args.k, args.k_norm);
  write_kv({.keys = args.k, .values = args.v, .slots = args.slots, .cache = args.cache});
}

void Backend::project_heads(const ProjectHeadsArgs& args) {
  check_args(args);
  norm_linear(args.product);
  place_heads(args.heads);
}

void Backend::logits(const LogitsArgs& args) {
  gather_rows({.x = args.x, .indices = args.indices, .out = args.picked});
  norm(args.picked, args.norm, args.picked);
  const LinearTarget target{.weight = args.weight, .bias = {}, .out = args.out};
  linear({.x = args.picked, .targets = {&target, 1}});
  if (args.softcap > 0) softcap({.x = args.out, .cap = args.softcap, .out = args.out});
}

}  // namespace llorch::compute
