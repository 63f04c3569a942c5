"""CPUs: object code by LLVM, linked into shared libraries that run in this process or under an emulator."""
