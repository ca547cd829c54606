// Protogen compiles a .proto file and writes the Go code of its messages and
// services beside it. It needs no protoc: the compiler and both generators are
// Go modules, at the versions that go.mod says.
//
//	protogen DIRECTORY FILE.proto
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: protogen DIRECTORY FILE.proto")
	}
	if err := generate(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal("protogen: ", err)
	}
}

// generate writes the files that both generators make of a .proto file of dir.
func generate(ctx context.Context, dir, file string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, file)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	}
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(ctx, dir, generator, request); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

func run(ctx context.Context, dir, generator string, request *pluginpb.CodeGeneratorRequest) error {
	raw, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", generator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(raw), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
