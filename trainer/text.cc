#include "trainer/text.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "trainer/error.h"
#include "trainer/file.h"
#include "trainer/loss.h"
#include "trainer/parameters.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;

std::string read_characters(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_text(const std::string& text) {
  return !text.empty() && text.find('\0') == std::string::npos;
}

/// Text files of a folder, without hidden files.
std::vector<fs::path> list_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file()) files.push_back(entry->path());
  }
  if (error) throw Error("cannot list " + folder.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

void add_file(const std::string& text, Text* sum) {
  const size_t train = text.size() - text.size() / 10;
  sum->train += text.substr(0, train);
  sum->held_out += text.substr(train);
}

}  // namespace

Vocabulary::Vocabulary(std::string_view text) : numbers_(256, -1) {
  std::vector<bool> seen(256);
  for (const char character : text) seen[static_cast<unsigned char>(character)] = true;
  for (size_t byte = 0; byte < seen.size(); ++byte) {
    if (!seen[byte]) continue;
    numbers_[byte] = static_cast<int>(characters_.size());
    characters_ += static_cast<char>(byte);
  }
}

std::vector<int> Vocabulary::encode(std::string_view text) const {
  std::vector<int> tokens;
  tokens.reserve(text.size());
  for (const char character : text) tokens.push_back(number_of(character));
  return tokens;
}

std::string Vocabulary::description() const {
  return ", characters " + std::to_string(hash_bytes(std::as_bytes(std::span(characters_))));
}

Text read_text(const std::vector<fs::path>& paths) {
  Text sum;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) throw Error("no such file or folder: " + path.string());
    if (fs::is_directory(path, error)) {
      for (const fs::path& file : list_folder(path)) {
        const std::string text = read_characters(file);
        if (is_text(text)) add_file(text, &sum);
      }
      continue;
    }
    const std::string text = read_characters(path);
    if (text.empty()) throw Error(path.string() + " is empty");
    if (!is_text(text)) throw Error(path.string() + " is not text: it holds bytes of value 0");
    add_file(text, &sum);
  }
  if (sum.train.empty() || sum.held_out.empty()) throw Error("there is not enough text to train on");
  return sum;
}

TextDataset::TextDataset(std::vector<int> tokens, size_t context, size_t stride, size_t scored_from)
    : tokens_(std::move(tokens)), context_(context), stride_(stride), scored_from_(scored_from) {
  if (tokens_.size() <= context)
    throw Error("a text of " + std::to_string(tokens_.size()) + " characters is too short for a context of " +
                std::to_string(context));
}

void TextDataset::read(std::span<const uint32_t> samples, Batch* batch) const {
  batch->input.resize(samples.size(), context_);
  batch->targets.resize(samples.size() * context_);
  for (size_t i = 0; i < samples.size(); ++i) {
    const int* window = tokens_.data() + samples[i] * stride_;
    std::transform(window, window + context_, batch->input.row(i),
                   [](int token) { return static_cast<float>(token); });
    int* targets = batch->targets.data() + i * context_;
    std::copy(window + 1, window + 1 + context_, targets);
    std::fill(targets, targets + scored_from_, kIgnored);
  }
}

Data make_text_data(const Text& text, const Vocabulary& vocabulary, size_t context) {
  Data data;
  data.train = std::make_unique<TextDataset>(vocabulary.encode(text.train), context, 1, 0);
  const size_t stride = std::max<size_t>(context / 2, 1);
  data.held_out =
      std::make_unique<TextDataset>(vocabulary.encode(text.held_out), context, stride, context - stride);
  data.classes = vocabulary.count();
  return data;
}

double trigram_loss(const std::vector<int>& train, const std::vector<int>& held_out, size_t vocabulary_count,
                    size_t first_scored) {
  struct Row {
    size_t total = 0;
    std::unordered_map<int, size_t> counts;  // by next character
  };
  // By the 0, 1 or 2 characters before, as one number.
  const auto base = static_cast<uint64_t>(vocabulary_count + 1);
  const auto key_of = [&](const int* next, size_t length) {
    uint64_t key = 0;
    for (size_t i = 1; i <= length; ++i) key = key * base + static_cast<uint64_t>(*(next - i)) + 1;
    return key;
  };
  constexpr size_t kLongestContext = 2;
  std::unordered_map<uint64_t, Row> rows;
  for (size_t i = 0; i < train.size(); ++i)
    for (size_t length = 0; length <= std::min(kLongestContext, i); ++length) {
      Row& row = rows[key_of(&train[i], length)];
      ++row.total;
      ++row.counts[train[i]];
    }
  double loss = 0;
  size_t count = 0;
  for (size_t i = std::max(first_scored, kLongestContext); i < held_out.size(); ++i, ++count) {
    double probability = 1 / static_cast<double>(vocabulary_count);
    for (size_t length = 0; length <= kLongestContext; ++length) {
      const auto row = rows.find(key_of(&held_out[i], length));
      if (row == rows.end()) continue;
      const auto seen = row->second.counts.find(held_out[i]);
      const auto matches = static_cast<double>(seen == row->second.counts.end() ? 0 : seen->second);
      const auto kinds = static_cast<double>(row->second.counts.size());
      probability = (matches + kinds * probability) / (static_cast<double>(row->second.total) + kinds);
    }
    loss -= std::log(probability);
  }
  return count == 0 ? 0 : loss / static_cast<double>(count);
}

}  // namespace tutti::trainer
