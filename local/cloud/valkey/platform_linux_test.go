package valkey_test

const diesWithParent = true
