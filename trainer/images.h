// Images: MNIST's IDX files from a folder, or digits that the trainer draws.
#pragma once

#include <filesystem>

#include "trainer/dataset.h"

namespace tutti::trainer {

/// Square images of one channel, 0 to 1, with labels.
class ImageDataset : public Dataset {
 public:
  /// A row of `pixels` is an image.
  ImageDataset(Matrix pixels, std::vector<int> labels)
      : pixels_(std::move(pixels)), labels_(std::move(labels)) {}
  size_t sample_count() const override { return labels_.size(); }
  size_t targets_per_sample() const override { return 1; }
  void read(std::span<const uint32_t> samples, Batch* batch) const override;

 private:
  Matrix pixels_;
  std::vector<int> labels_;
};

/// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files, not compressed (a dot in
/// place of the last dash is accepted). Throws Error with the file's name: missing, no IDX file of this kind,
/// too short, too long, images not square, labels above 9, or different numbers of images and labels.
Data read_idx_folder(const std::filesystem::path& folder);

/// 28 x 28 images of the ten digits. Each is drawn with strokes, then randomly shifted, scaled, rotated,
/// slanted and given noise. Equal seeds give equal images.
Data draw_digits(size_t train_count, size_t held_out_count, uint64_t seed);

}  // namespace tutti::trainer
