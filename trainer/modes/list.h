// The modes: a row each. A mode is one file of this folder, the row, and its name in trainer/meson.build.
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
    {"layers", "every rank has some layers", make_layers_mode},
    {"pipeline", "layers on ranks, micro-batches in flight", make_pipeline_mode},
    {"tensor", "every rank has a part of each matrix", make_tensor_mode},
    {"grid", "data x pipeline x tensor", make_grid_mode},
    {"zero", "what all ranks would hold alike is sharded", make_zero_mode},
    {"local", "own steps, and an average now and then", make_local_mode},
    {"server", "parameter servers and workers", make_server_mode},
    {"expert", "every rank has some experts", make_expert_mode},
    {"elastic", "data, while ranks die and join", nullptr},  // main.cc: it starts its own processes
    {"fusion", "data, with reductions in cycles of time", make_fusion_mode},
};

}  // namespace tutti::trainer
