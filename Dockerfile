# tutti, built and installed into /usr/local. `docker build -t tutti . && docker run --rm --shm-size=1g tutti`
FROM debian:12
COPY . /src
WORKDIR /src
RUN apt-get update && ./dev install /usr/local && ldconfig
CMD ["all_reduce_perf", "--procs", "2", "--memory", "host", "-b", "8", "-e", "64M", "-f", "2", "-c", "1"]
