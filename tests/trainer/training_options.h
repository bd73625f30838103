// Small trainings that take a moment, for tests.
#pragma once

#include <string>

#include "tests/support/scratch.h"
#include "trainer/options.h"

namespace tutti::test {

/// A transformer of some 5,000 parameters on 2,700 characters of text that is written into `scratch`; 5 steps
/// of 60 samples, which 1 to 5 ranks can share.
inline trainer::Options small_transformer(const Scratch& scratch) {
  std::string text;
  uint32_t state = 7;
  while (text.size() < 3000) {
    state = state * 1664525 + 1013904223;
    text += std::string("aeiou")[state >> 29 & 3];
    text += std::string("bcdfghjk lmnpqrst")[state >> 20 & 15];
  }
  scratch.write("text", text);
  trainer::Options options;
  options.device = "host";
  options.data = {scratch.path() / "text"};
  options.model.context = 8;
  options.model.width = 16;
  options.model.depth = 1;
  options.model.heads = 2;
  options.steps = 5;
  options.batch = 60;
  options.optimizer.name = "sgd";
  options.learning_rate = 0.1;
  options.reproducible = true;
  return options;
}

inline trainer::Options small_images(const std::string& model) {
  trainer::Options options;
  options.device = "host";
  options.model.name = model;
  options.digits = 96;
  options.steps = 6;
  options.batch = 24;
  options.learning_rate = 1e-3;
  options.reproducible = true;
  return options;
}

}  // namespace tutti::test
