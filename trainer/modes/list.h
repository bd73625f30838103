// The modes: a row each. A mode is one file of this folder, the row, and its name in trainer/meson.build.
// Data parallelism has no row: main.cc starts it, as it has its own loop.
#pragma once

#include "trainer/mode.h"

namespace tutti::trainer {

std::unique_ptr<Mode> make_expert_mode(const ModeContext& context);
std::unique_ptr<Mode> make_fusion_mode(const ModeContext& context);
std::unique_ptr<Mode> make_layers_mode(const ModeContext& context);
std::unique_ptr<Mode> make_pipeline_mode(const ModeContext& context);
std::unique_ptr<Mode> make_tensor_mode(const ModeContext& context);
std::unique_ptr<Mode> make_grid_mode(const ModeContext& context);
std::unique_ptr<Mode> make_local_mode(const ModeContext& context);
std::unique_ptr<Mode> make_server_mode(const ModeContext& context);
std::unique_ptr<Mode> make_zero_mode(const ModeContext& context);

inline constexpr ModeEntry kModes[] = {
    {"layers", "every rank has some layers", "--experts", make_layers_mode},
    {"pipeline", "layers on ranks, micro-batches in flight", "--schedule --chunks --experts",
     make_pipeline_mode},
    {"tensor", "every rank has a part of each matrix", "--sequence", make_tensor_mode},
    {"grid", "data x pipeline x tensor", "--pipeline-ranks --tensor-ranks --sequence --schedule",
     make_grid_mode},
    {"zero", "what all ranks would hold alike is sharded", "--zero-stage --offload --experts",
     make_zero_mode},
    {"local", "own steps, and an average now and then", "--period --outer-rate --outer-momentum --experts",
     make_local_mode},
    {"server", "parameter servers and workers", "--servers --staleness --experts", make_server_mode},
    {"expert", "every rank has some experts", "--experts", make_expert_mode},
    // main.cc starts it: it has its own processes.
    {"elastic", "data, while ranks die and join", "--experts", nullptr},
    {"fusion", "data, with reductions in cycles of time", "--fusion-ms --experts", make_fusion_mode},
};

}  // namespace tutti::trainer
