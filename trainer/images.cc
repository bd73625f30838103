// See images.h: the dataset and IDX files (http://yann.lecun.com/exdb/mnist): a big-endian header, then
// bytes.
#include "trainer/images.h"

#include <algorithm>

#include "trainer/error.h"
#include "trainer/file.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;

struct Idx {
  std::string path;
  std::vector<size_t> sizes = {};
  std::vector<unsigned char> values = {};
};

fs::path find_file(const fs::path& folder, const std::string& stem, const std::string& kind) {
  for (const char* between : {"-", "."}) {
    fs::path path = folder / stem;
    path += between;
    path += kind;
    if (fs::exists(path)) return path;
  }
  throw Error("no such file: " + (folder / (stem + "-" + kind)).string() +
              " (MNIST's files, decompressed, are expected there)");
}

Idx read_idx(const fs::path& path, size_t dimensions) {
  const std::vector<std::byte> raw = read_file(path);
  const std::span bytes(reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  const size_t header_bytes = 4 + 4 * dimensions;
  const bool magic =
      bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 && bytes[3] == dimensions;
  if (!magic)
    throw Error(path.string() + " is not an IDX file of bytes in " + std::to_string(dimensions) +
                " dimensions");
  if (bytes.size() < header_bytes) throw Error(path.string() + " is cut short in its header");
  Idx idx{.path = path.string()};
  size_t count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    size_t size = 0;
    for (size_t j = 0; j < 4; ++j) size = size << 8 | bytes[4 + 4 * i + j];
    idx.sizes.push_back(size);
    // Two sizes below 2^32 cannot overflow. Before the third size the product is limited by the file's size.
    count = count > bytes.size() ? count : count * size;
  }
  if (bytes.size() - header_bytes != count)
    throw Error(path.string() + " is " + (bytes.size() - header_bytes < count ? "cut short" : "too long") +
                ": " + std::to_string(bytes.size()) + " bytes");
  idx.values.assign(bytes.begin() + static_cast<ptrdiff_t>(header_bytes), bytes.end());
  return idx;
}

std::unique_ptr<Dataset> read_pair(const fs::path& folder, const std::string& stem, size_t* side) {
  const Idx images = read_idx(find_file(folder, stem, "images-idx3-ubyte"), 3);
  const Idx labels = read_idx(find_file(folder, stem, "labels-idx1-ubyte"), 1);
  if (images.sizes[0] != labels.sizes[0])
    throw Error(images.path + " has " + std::to_string(images.sizes[0]) + " images, " + labels.path +
                " has " + std::to_string(labels.sizes[0]) + " labels");
  if (images.sizes[0] == 0) throw Error(images.path + " has no images");
  if (images.sizes[1] != images.sizes[2] || images.sizes[1] == 0)
    throw Error(images.path + " has images of " + std::to_string(images.sizes[1]) + " x " +
                std::to_string(images.sizes[2]) + " pixels: they have to be square");
  const auto largest = std::max_element(labels.values.begin(), labels.values.end());
  if (*largest > 9)
    throw Error(labels.path + " has a label " + std::to_string(*largest) + ": 0 to 9 are expected");
  *side = images.sizes[1];
  Matrix pixels(images.sizes[0], *side * *side);
  std::transform(images.values.begin(), images.values.end(), pixels.data(),
                 [](unsigned char byte) { return static_cast<float>(byte) / 255; });
  return std::make_unique<ImageDataset>(std::move(pixels),
                                        std::vector<int>(labels.values.begin(), labels.values.end()));
}

}  // namespace

void ImageDataset::read(std::span<const uint32_t> samples, Batch* batch) const {
  batch->input.resize(samples.size(), pixels_.columns());
  batch->targets.resize(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    std::copy(pixels_.row(samples[i]), pixels_.row(samples[i]) + pixels_.columns(), batch->input.row(i));
    batch->targets[i] = labels_[samples[i]];
  }
}

Data read_idx_folder(const fs::path& folder) {
  Data data;
  size_t held_out_side = 0;
  data.train = read_pair(folder, "train", &data.side);
  data.held_out = read_pair(folder, "t10k", &held_out_side);
  if (held_out_side != data.side)
    throw Error("images for training and for testing differ in size in " + folder.string());
  data.classes = 10;
  return data;
}

}  // namespace tutti::trainer
