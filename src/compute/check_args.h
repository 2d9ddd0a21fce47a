// The shape rules of ops.h as code, in one place for all backends. A broken rule is a bug of the
// caller: CHECK. Only shapes and types are looked at, never device memory.
#pragma once

#include "compute/choose.h"
#include "compute/edit_logits.h"
#include "compute/ops.h"

namespace llorch::compute {

void check_args(const EmbedArgs& args);
void check_args(const LayerNormArgs& args);
void check_args(const RmsNormArgs& args);
void check_args(const LinearArgs& args);
void check_args(const ActivationArgs& args);
void check_args(const RopeAnglesArgs& args);
void check_args(const RopeArgs& args);
void check_args(const WriteKvArgs& args);
void check_args(const AttentionArgs& args);
void check_args(const GatherRowsArgs& args);
void check_args(const SoftcapArgs& args);
void check_args(const SoftmaxArgs& args);
void check_args(const ArgmaxArgs& args);
void check_args(const DrawArgs& args);
void check_args(const ChooseArgs& args);
void check_args(const EditLogitsArgs& args);
void check_args(const NormLinearArgs& args);
void check_args(const PlaceHeadsArgs& args);
void check_args(const ProjectHeadsArgs& args);
void check_args(const MlpInArgs& args);
void check_args(const BeginRowsArgs& args);
void check_args(const LogitsArgs& args);

}  // namespace llorch::compute
