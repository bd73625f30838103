// Places from environments, and the ways of the unique id: pipe and file.
#include "perf/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

// Environments as functions, because GetEnv is a plain pointer.
const char* find(std::initializer_list<std::pair<const char*, const char*>> list, const char* name) {
  for (const auto& [key, value] : list)
    if (std::strcmp(key, name) == 0) return value;
  return nullptr;
}
const char* nothing(const char*) {
  return nullptr;
}
const char* torchrun(const char* name) {
  return find({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"TUTTI_ID_FILE", "/tmp/id"}}, name);
}
const char* mpirun(const char* name) {
  return find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"TUTTI_ID_FILE", "/tmp/id"}},
              name);
}
const char* lone_slurm(const char* name) {
  return find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, name);
}
const char* without_file(const char* name) {
  return find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, name);
}
const char* contradictory(const char* name) {
  return find({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, name);
}
const char* worker(const char* name) {
  return find({{kWorkerVariable, "1 3 5"}}, name);
}
const char* broken_worker(const char* name) {
  return find({{kWorkerVariable, "3 3 5"}}, name);
}

TEST(LaunchTest, AloneWithoutAnyLauncher) {
  const Result<Place> place = find_place({}, nothing);
  ASSERT_TRUE(place.is_ok());
  EXPECT_EQ(place->process_count, 1);
  EXPECT_EQ(place->channel, Place::Channel::kNone);
}

TEST(LaunchTest, LaunchersGiveRankSizeAndFile) {
  const Result<Place> torch = find_place({}, torchrun);
  ASSERT_TRUE(torch.is_ok());
  EXPECT_EQ(torch->process, 2);
  EXPECT_EQ(torch->process_count, 4);
  EXPECT_EQ(torch->id_path, "/tmp/id");
  EXPECT_EQ(find_place({}, mpirun)->process_count, 2);
  EXPECT_EQ(find_place({}, lone_slurm)->channel, Place::Channel::kNone);
}

TEST(LaunchTest, MissingOrContradictoryVariablesAreNamed) {
  const Result<Place> missing = find_place({}, without_file);
  ASSERT_FALSE(missing.is_ok());
  EXPECT_THAT(std::string(missing.status().text()), testing::HasSubstr("TUTTI_ID_FILE"));
  const Result<Place> wrong = find_place({}, contradictory);
  ASSERT_FALSE(wrong.is_ok());
  EXPECT_THAT(std::string(wrong.status().text()), testing::HasSubstr("WORLD_SIZE"));
}

TEST(LaunchTest, AWorkerKnowsItsPlaceAndDoesNotSupervise) {
  Options options;
  options.processes = 3;
  EXPECT_TRUE(is_supervisor(options, nothing));
  EXPECT_FALSE(is_supervisor(options, worker));
  const Result<Place> place = find_place(options, worker);
  ASSERT_TRUE(place.is_ok());
  EXPECT_EQ(place->process, 1);
  EXPECT_EQ(place->process_count, 3);
  EXPECT_EQ(place->pipe_descriptor, 5);
  EXPECT_FALSE(find_place(options, broken_worker).is_ok());
}

tutti_unique_id_t sample_id() {
  tutti_unique_id_t id;
  for (size_t i = 0; i < sizeof(id.bytes); ++i) id.bytes[i] = static_cast<char>(i * 7);
  return id;
}

TEST(LaunchTest, ThePipeCarriesTheIdToEveryProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto place = [&](int process, int descriptor) {
    return Place{.process = process,
                 .process_count = 3,
                 .channel = Place::Channel::kPipe,
                 .pipe_descriptor = descriptor,
                 .id_path = ""};
  };
  tutti_unique_id_t id = sample_id();
  ASSERT_TRUE(share_id(place(0, ends[1]), &id, {}).is_ok());
  ::close(ends[1]);
  for (int process = 1; process < 3; ++process) {
    tutti_unique_id_t got{};
    ASSERT_TRUE(share_id(place(process, ends[0]), &got, {}).is_ok());
    EXPECT_EQ(std::memcmp(&got, &id, sizeof(id)), 0);
  }
  // Nobody wrote for a third reader: it learns that process 0 is gone instead of waiting.
  tutti_unique_id_t none{};
  EXPECT_EQ(share_id(place(2, ends[0]), &none, {}).code(), Code::kPeerLost);
  ::close(ends[0]);
}

class IdFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti_id_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Place place(int process) const {
    return {.process = process,
            .process_count = 2,
            .channel = Place::Channel::kFile,
            .pipe_descriptor = -1,
            .id_path = (folder_ / "id").string()};
  }

  std::filesystem::path folder_;
};

TEST_F(IdFileTest, TheFileCarriesTheIdAndGoesWhenForgotten) {
  tutti_unique_id_t id = sample_id();
  tutti_unique_id_t got{};
  Status read;
  std::thread reader([&] { read = share_id(place(1), &got, Clock::now() + std::chrono::seconds(20)); });
  const Status written = share_id(place(0), &id, Clock::now());
  reader.join();
  ASSERT_TRUE(written.is_ok()) << written.text();
  ASSERT_TRUE(read.is_ok()) << read.text();
  EXPECT_EQ(std::memcmp(&got, &id, sizeof(id)), 0);
  forget_id(place(1));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "id"));
  forget_id(place(0));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// Goal: the id of an earlier run is never taken for this run's.
TEST_F(IdFileTest, AFileOfAnEarlierRunIsRefusedByRankZero) {
  std::ofstream(folder_ / "id") << "old";
  tutti_unique_id_t id = sample_id();
  const Status status = share_id(place(0), &id, Clock::now());
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(status.text()), testing::HasSubstr("remove it"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(IdFileTest, AFileThatNeverComesIsATimeout) {
  tutti_unique_id_t id{};
  EXPECT_EQ(share_id(place(1), &id, Clock::now()).code(), Code::kTimeout);
}

TEST_F(IdFileTest, AFileWithOtherContentsIsRefused) {
  std::ofstream(folder_ / "id") << "short";
  tutti_unique_id_t id{};
  EXPECT_EQ(share_id(place(1), &id, Clock::now()).code(), Code::kInvalidUsage);
}

}  // namespace
}  // namespace tutti::perf
