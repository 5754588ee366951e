// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

// nvidia-cdi writes CDI specifications with the generator of NVIDIA's container
// toolkit, for GPUs that are files alone, and reads specifications with the
// library of the container runtimes.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const usage = `usage:
  nvidia-cdi generate ROOT FILE STRATEGY UUID...  write the specification of a driver below ROOT;
                                                  names of devices follow STRATEGY (index, uuid)
  nvidia-cdi inject FOLDER DEVICE...              print what a runtime makes of devices of a folder`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nvidia-cdi:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) > 4 && arguments[0] == "generate":
		return generate(arguments[1], arguments[2], arguments[3], arguments[4:])
	case len(arguments) > 2 && arguments[0] == "inject":
		return inject(arguments[1], arguments[2:])
	default:
		return fmt.Errorf("%s", usage)
	}
}

// generate writes what `nvidia-ctk cdi generate` writes where NVML lists these GPUs.
func generate(root, file, strategy string, uuids []string) error {
	namer, err := nvcdi.NewDeviceNamer(strategy)
	if err != nil {
		return err
	}
	library := fakeNvml(uuids)
	generator, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithDriverRoot(root),
		nvcdi.WithDevRoot(root),
		nvcdi.WithDeviceNamers(namer),
		nvcdi.WithNvmlLib(library),
		nvcdi.WithDeviceLib(device.New(library, device.WithVerifySymbols(false))),
	)
	if err != nil {
		return err
	}
	spec, err := generator.GetSpec()
	if err != nil {
		return err
	}
	return spec.Save(file)
}

// fakeNvml is NVML with whole GPUs that have these identifiers.
func fakeNvml(uuids []string) nvml.Interface {
	var devices []nvml.Device
	byUUID := map[string]nvml.Device{}
	for index, uuid := range uuids {
		fake := fakeDevice(index, uuid)
		devices = append(devices, fake)
		byUUID[uuid] = fake
	}
	return &mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "580.65.06", nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(index int) (nvml.Device, nvml.Return) { return devices[index], nvml.SUCCESS },
		DeviceGetHandleByUUIDFunc:  func(uuid string) (nvml.Device, nvml.Return) { return byUUID[uuid], nvml.SUCCESS },
	}
}

func fakeDevice(index int, uuid string) nvml.Device {
	return &mock.Device{
		GetIndexFunc:                 func() (int, nvml.Return) { return index, nvml.SUCCESS },
		GetMinorNumberFunc:           func() (int, nvml.Return) { return index, nvml.SUCCESS },
		GetUUIDFunc:                  func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:                  func() (string, nvml.Return) { return "NVIDIA H100", nvml.SUCCESS },
		GetMaxMigDeviceCountFunc:     func() (int, nvml.Return) { return 0, nvml.SUCCESS },
		IsMigDeviceHandleFunc:        func() (bool, nvml.Return) { return false, nvml.SUCCESS },
		GetMigModeFunc:               func() (int, int, nvml.Return) { return 0, 0, nvml.SUCCESS },
		GetPciInfoFunc:               func() (nvml.PciInfo, nvml.Return) { return pciOf(index), nvml.SUCCESS },
		GetDisplayModeFunc:           func() (nvml.EnableState, nvml.Return) { return 0, nvml.SUCCESS },
		GetCudaComputeCapabilityFunc: func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS },
	}
}

// pciOf is an address that no machine has.
func pciOf(index int) nvml.PciInfo {
	info := nvml.PciInfo{Domain: 0xfffe, Bus: uint32(index)}
	for at, char := range fmt.Sprintf("FFFE:%02X:00.0", index) {
		setChar(&info.BusId[at], char)
	}
	return info
}

// setChar sets a character of a C text, which is signed on some platforms.
func setChar[Char int8 | uint8](place *Char, char rune) { *place = Char(char) }

// inject prints the OCI specification of an empty container that gets these devices.
func inject(folder string, names []string) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	for _, errors := range cache.GetErrors() {
		if len(errors) > 0 {
			return errors[0]
		}
	}
	container := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if unresolved, err := cache.InjectDevices(container, names...); err != nil {
		return fmt.Errorf("%v: %w", unresolved, err)
	}
	return json.NewEncoder(os.Stdout).Encode(container)
}
